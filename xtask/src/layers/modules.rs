//! Checks that there are no import cycles among the modules of a crate.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::Result;
use crate::cargo::rust_files;

/// The imports between the modules at the root of a crate. Imports in tests are left out.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Returns an import cycle among the modules at the root of the crate in `folder`, such as
/// `["hello", "server", "hello"]`.
pub(super) fn cycle(folder: &Path) -> Result<Option<Vec<String>>> {
    let mut files = Vec::new();
    for path in rust_files(folder)? {
        let module = path.strip_prefix(folder)?.with_extension("");
        let module = module.iter().map(|part| part.to_string_lossy().into_owned());
        files.push((module.collect(), fs::read_to_string(&path)?));
    }
    Ok(find_cycle(&imports(&files)))
}

/// Collects the imports in `files`. Each file is given as the path of its module and its contents.
fn imports(files: &[(Vec<String>, String)]) -> Imports {
    let mut tests = BTreeSet::new();
    let mut all = Imports::new();
    for (module, text) in files {
        let declared = test_modules(text).map(|name| [module.clone(), vec![name]].concat());
        tests.extend(declared);
    }
    let is_test = |module: &[String]| tests.iter().any(|test| module.starts_with(test));
    for (module, text) in files {
        if let [root, ..] = &**module
            && root != "lib"
            && !is_test(module)
        {
            let targets = targets(&code(text), module.len());
            all.entry(root.clone()).or_default().extend(targets);
        }
    }
    let modules: BTreeSet<String> = all.keys().cloned().collect();
    for (module, targets) in &mut all {
        targets.retain(|target| target != module && modules.contains(target));
    }
    all
}

/// Returns the names of the modules that exist only for tests and have a file of their own.
fn test_modules(text: &str) -> impl Iterator<Item = String> {
    text.split("#[cfg(test)]").skip(1).filter_map(|item| {
        let (head, _) = item.split_once(';')?;
        let name = head.trim().rsplit_once("mod ")?.1;
        name.chars().all(is_of_name).then(|| name.to_owned())
    })
}

/// Returns the code in `text` without comments, test imports and the test module, which is always
/// last.
fn code(text: &str) -> String {
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or(line));
    let text = lines.collect::<Vec<_>>().join("\n");
    let mut items = text.split("#[cfg(test)]");
    let mut code = items.next().unwrap_or_default().to_owned();
    for item in items {
        let (head, rest) = item.split_once(';').unwrap_or((item, ""));
        let head = head.trim_start();
        if head.starts_with("mod ") && head.contains('{') {
            break;
        }
        code += if head.starts_with("use ") { rest } else { item };
    }
    code
}

/// Returns the first segment of each path that begins at the root of the crate. The code belongs to
/// a module that is `depth` levels below the root.
fn targets(code: &str, depth: usize) -> BTreeSet<String> {
    let from_root = ["crate::".to_owned(), "super::".repeat(depth)];
    let mut targets = BTreeSet::new();
    for prefix in &from_root {
        for (at, _) in code.match_indices(prefix.as_str()) {
            if !code[..at].ends_with(|before| is_of_name(before) || before == ':') {
                first_names(&code[at + prefix.len()..], &mut targets);
            }
        }
    }
    targets
}

/// Adds the first segment of a path. If the path is a list in braces, adds the first segment of
/// each path in the list.
fn first_names(path: &str, names: &mut BTreeSet<String>) {
    let mut depth = 0;
    let mut is_first = true;
    let mut name = String::new();
    for letter in path.chars() {
        if is_of_name(letter) {
            if is_first {
                name.push(letter);
            }
            continue;
        }
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        names.extend((!name.is_empty()).then(|| std::mem::take(&mut name)));
        if depth == 0 {
            return;
        }
        is_first =
            depth == 1 && (letter == '{' || letter == ',' || is_first && letter.is_whitespace());
    }
}

fn is_of_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// Returns the modules of the first cycle that is found. The first module is repeated at the end.
fn find_cycle(imports: &Imports) -> Option<Vec<String>> {
    let mut finished = BTreeSet::new();
    let mut path = Vec::new();
    let mut modules = imports.keys();
    modules.find_map(|module| follow(imports, module, &mut path, &mut finished))
}

fn follow<'a>(
    imports: &'a Imports,
    module: &'a String,
    path: &mut Vec<&'a String>,
    finished: &mut BTreeSet<&'a String>,
) -> Option<Vec<String>> {
    if let Some(start) = path.iter().position(|earlier| *earlier == module) {
        let cycle = path[start..].iter().copied().chain([module]);
        return Some(cycle.cloned().collect());
    }
    if finished.contains(module) {
        return None;
    }
    path.push(module);
    let mut targets = imports[module].iter();
    let found = targets.find_map(|target| follow(imports, target, path, finished));
    path.pop();
    finished.insert(module);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[(&str, &str)]) -> Option<String> {
        let files: Vec<(Vec<String>, String)> = files
            .iter()
            .map(|(module, text)| {
                let module = module.split('/').map(str::to_owned).collect();
                (module, (*text).to_owned())
            })
            .collect();
        find_cycle(&imports(&files)).map(|cycle| cycle.join(" -> "))
    }

    #[test]
    fn cycles_are_found_in_every_form_of_import() {
        let forms = [
            "use crate::a;",
            "use crate::a::{B, C};",
            "use crate::{b::{D, E}, a::B};",
            "use crate::{\n    b,\n    a,\n};",
            "use super::a::B;",
            "pub use crate::a::B;",
            "fn f() -> crate::a::B {}",
        ];
        for form in forms {
            let files = [("a", "use crate::{b::c, d};"), ("b", form), ("d", "")];
            assert_eq!(check(&files).as_deref(), Some("a -> b -> a"), "{form}");
        }
        let nested = [
            ("a", "use crate::b;"),
            ("b", "mod c;"),
            ("b/c", "use super::super::d;"),
            ("d", "use crate::a;"),
        ];
        assert_eq!(check(&nested).as_deref(), Some("a -> b -> d -> a"));
    }

    #[test]
    fn comments_tests_and_imports_within_a_module_make_no_cycle() {
        let harmless = [
            "//! See [`a`](crate::a).",
            "/// See [`a`](crate::a).\nfn f() {}",
            "use crate::d::a;",
            "use crate::{d::{a, b}};",
            "use super::d;",
            "use other_crate::a;",
            "#[cfg(test)]\nuse crate::a;",
            "#[cfg(test)]\nuse crate::{\n    a,\n    d,\n};",
            "#[cfg(test)]\nmod tests {\n    use crate::a;\n}",
            "mod c;\nuse self::c::a;",
        ];
        for text in harmless {
            let files = [("a", "use crate::{b, d};"), ("b", text), ("d", "")];
            assert_eq!(check(&files), None, "{text}");
        }
        let tests = [
            ("a", "use crate::b;"),
            ("b", "#[cfg(test)]\npub(crate) mod tests;\nmod c;"),
            ("b/tests", "use crate::a;"),
            ("b/tests/more", "use crate::a;"),
            ("b/c", "use super::super::d;\nuse super::a;"),
            ("d", ""),
        ];
        assert_eq!(check(&tests), None);
    }
}
