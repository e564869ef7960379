use super::*;

const PAGE: &str = "\
# L. Selection

- **L-1** One. [Server Selection]
- **L-2** Two. [Server Selection]
  Caller's duty: it calls.
- **L-3** own. Three.
";

fn citations(files: &[(&str, &str)]) -> Citations {
    let mut citations = Citations::new().unwrap();
    for (path, text) in files {
        citations.read(path, text);
    }
    citations
}

#[test]
fn only_a_must_without_an_exemption_needs_a_proof() {
    let page = Page::parse(PAGE);
    let needs: Vec<_> = page.rules().map(|rule| (rule.id, rule.needs_proof)).collect();
    assert_eq!(needs, [("L-1", true), ("L-2", false), ("L-3", false)]);
}

#[test]
fn proofs_are_written_below_their_rules_and_replace_older_ones() {
    let test = "// L-1, L-3\n#[test]\nfn a_rule_holds() {\n    // L-2: in words\n}\n";
    let citations = citations(&[("a/src/b/tests.rs", test)]);
    let expected = "\
# L. Selection

- **L-1** One. [Server Selection]
  (`a/src/b/tests.rs::a_rule_holds`)
- **L-2** Two. [Server Selection]
  Caller's duty: it calls.
  (`a/src/b/tests.rs::a_rule_holds`)
- **L-3** own. Three.
  (`a/src/b/tests.rs::a_rule_holds`)
";
    let once = Page::parse(PAGE).render(&citations);
    assert_eq!(once, expected);
    assert_eq!(Page::parse(&once).render(&citations), expected);
}

#[test]
fn only_tests_oracles_and_official_files_prove_anything() {
    let check = |path: &str, text: &str, expected: Option<&str>| {
        let proof = citations(&[(path, text)]).proof("L-4");
        assert_eq!(proof.as_deref(), expected, "{path}: {text}");
    };
    check("a/src/b.rs", "/// L-4\nfn code() {}\n", None);
    check(
        "a/src/b.rs",
        "fn code() {}\n#[cfg(test)]\nmod tests {\n    // L-4\n    fn it() {}\n}\n",
        Some("`a/src/b.rs::it`"),
    );
    check("a/tests/b.rs", "//! L-4\n\nfn it() {}\n", Some("`a/tests/b.rs`"));
    check(
        "proof/chaos/src/oracle/step.rs",
        "fn judge() { format!(\"L-4: no\") }\n",
        Some("oracle `proof/chaos/src/oracle/step.rs`"),
    );
    check(
        "proof/spec/src/suite.rs",
        "//! | `rs` | L-1, L-3 to L-5 |\n",
        Some("official files `rs`"),
    );
}

#[test]
fn rule_ids_are_distinguished_from_similar_texts() {
    let check = |text: &str, expected: &[&str]| {
        let citations = citations(&[("a/tests.rs", text)]);
        let named: Vec<_> = citations.named().map(|(rule, _)| rule).collect();
        assert_eq!(named, expected, "{text}");
    };
    check("// F-68b, (M-3)", &["F-68b", "M-3"]);
    check("// UTF-8, SHA-1, CRC-32C, A-b, L-4x, Z-5", &[]);
    check("let l = L-4;", &[]);
    check("// B-2 to B-4; C-1 to D-2", &["B-2", "B-3", "B-4", "C-1", "D-2"]);
}
