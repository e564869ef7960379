//! Parses lists of targets in the format that Prometheus uses for service discovery: `file_sd` and
//! `http_sd`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::targets::{Named, check_name};

/// An example of a list.
const EXAMPLE: &str = r#"[{"targets": ["db-0.example.com:27017"], "labels": {"team": "shop"}}]"#;

/// The label with the name of a target. A group that has this label must have only one target.
const NAME: &str = "deployment";

/// A group of targets with the same labels. Labels other than [`NAME`] are meant for Prometheus,
/// which adds them to every series of these targets.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    targets: Vec<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// Reads the deployments in `text`, sorted by name. `file` names the origin of the text. A target
/// is a connection string, with or without `mongodb://`. The name of the deployment is the value of
/// the label `deployment` or, without this label, the hosts of the target.
///
/// # Errors
///
/// If the list is invalid. The error names the origin and the place in the list, but shows no
/// target.
pub(super) fn parse(text: &str, file: &str) -> Result<Vec<Named>, String> {
    let groups: Vec<Group> = serde_json::from_str(text).map_err(|error| {
        // Do not show the error's own message, because it may contain a target.
        let (line, column) = (error.line(), error.column());
        format!("{file}: line {line}, column {column}: it needs groups of targets: {EXAMPLE}")
    })?;
    let mut found = Vec::new();
    for (place, Group { targets, labels }) in (1..).zip(groups) {
        let label = labels.get(NAME);
        for (number, target) in (1..).zip(&targets) {
            let origin = format!("{file}: group {place}, target {number}");
            let name = match label {
                Some(_) if targets.len() > 1 => {
                    Err("the label deployment names one target; put each target into its own group")
                }
                Some(name) => check_name(name).map(|()| &**name),
                None => hosts(target).ok_or(
                    "it needs hosts, such as db-0.example.com:27017, or a name: the label \
                     deployment of its group",
                ),
            };
            let name = name.map_err(|said| format!("{origin}: {said}"))?;
            let scheme = if target.contains("://") { "" } else { "mongodb://" };
            found.push(Named::new(name, format!("{scheme}{target}"), origin));
        }
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    // If a target is listed twice, keep only one of the entries, as Prometheus does.
    found.dedup_by(|one, other| one.is(other));
    match found.windows(2).find(|pair| pair[0].name == pair[1].name) {
        Some([_, other]) => Err(other.with_origin(
            "another target has the same hosts or name; put it into its own group, with the label \
             deployment",
        )),
        _ => Ok(found),
    }
}

/// Returns the hosts of a target if they can be used as its name.
fn hosts(target: &str) -> Option<&str> {
    let (_, rest) = target.split_once("://").unwrap_or(("", target));
    let hosts = &rest[..rest.find(['/', '?']).unwrap_or(rest.len())];
    let (_, hosts) = hosts.rsplit_once('@').unwrap_or(("", hosts));
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.:,[]".contains(letter);
    (!hosts.is_empty() && hosts.chars().all(is_plain)).then_some(hosts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_named_by_their_hosts_or_by_a_label() {
        let text = r#"[
            {"targets": ["b:1", "mongodb://u:p@a,[::1]:2/?replicaSet=rs0", "b:1"],
             "labels": {"team": "shop"}},
            {"targets": ["mongodb+srv://c.example.com"], "labels": {"deployment": "orders"}},
            {"targets": []}
        ]"#;
        let found = parse(text, "f").unwrap();
        let found: Vec<_> =
            found.iter().map(|it| (it.name.as_deref().unwrap(), &*it.uri)).collect();
        let expected = [
            ("a,[::1]:2", "mongodb://u:p@a,[::1]:2/?replicaSet=rs0"),
            ("b:1", "mongodb://b:1"),
            ("orders", "mongodb+srv://c.example.com"),
        ];
        assert_eq!(found, expected);
        assert_eq!(parse("[]", "f"), Ok(vec![]));
    }

    #[test]
    fn errors_name_the_place_and_the_remedy_and_show_no_target() {
        let check = |text: &str, start: &str, remedy: &str| {
            let said = parse(text, "f").unwrap_err();
            assert!(said.starts_with(start) && said.contains(remedy), "{said}");
            assert!(!said.contains("secret"), "{said}");
        };
        check("", "f: line 1, column 0: it needs groups", EXAMPLE);
        check("orders = 'a'", "f: line 1, column 1: it needs groups", EXAMPLE);
        check("[\n\"mongodb://u:secret@h/\"]", "f: line 2, ", EXAMPLE);
        check(r#"[{"targets": "mongodb://u:secret@h/"}]"#, "f: line 1, ", EXAMPLE);
        check(r#"[{"targets": [], "label": {"a": "secret"}}]"#, "f: line 1, ", EXAMPLE);
        let remedy = "the label deployment";
        check(r#"[{"targets": ["a", ""]}]"#, "f: group 1, target 2: it needs hosts", remedy);
        check(r#"[{"targets": ["mongodb://u:secret@/"]}]"#, "f: group 1, target 1: ", remedy);
        check(r#"[{"targets": ["mongodb://u:se%cret@h"]}, {"targets": ["h"]}]"#, "f: ", remedy);
        check(
            r#"[{"targets": ["a", "b"], "labels": {"deployment": "c"}}]"#,
            "f: group 1, target 1: ",
            "its own group",
        );
        let unnamed = r#"[{"targets": ["a"], "labels": {"deployment": "a b"}}]"#;
        check(unnamed, "f: group 1, target 1: a name must", "rename it");
    }
}
