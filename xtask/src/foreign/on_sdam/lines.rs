//! Counts the lines of Rust files.

use std::fmt;
use std::iter::Sum;
use std::path::Path;

/// The number of lines of source code, without unit tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lines {
    all: usize,
    /// The number of lines that are neither blank nor comments.
    code: usize,
}

impl Lines {
    /// Counts the lines of a file, except those in items that are marked with `#[cfg(test)]`.
    pub(super) fn of(text: &str) -> Self {
        let mut lines = Self::default();
        let mut skipped = None;
        for line in text.lines() {
            let trimmed = line.trim();
            if trimmed == "#[cfg(test)]" {
                skipped = Some(0);
                continue;
            }
            if let Some(depth) = skipped.as_mut() {
                *depth += line.matches(['{', '(', '[']).count();
                *depth -= line.matches(['}', ')', ']']).count().min(*depth);
                let is_end = trimmed.ends_with(['}', ';', ',']);
                if *depth == 0 && is_end {
                    skipped = None;
                }
                continue;
            }
            lines.all += 1;
            lines.code += usize::from(!trimmed.is_empty() && !trimmed.starts_with("//"));
        }
        lines
    }
}

/// Returns whether a file contains Rust code.
pub(super) fn is_source(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|it| it == "rs")
}

/// Returns whether a file contains only tests.
pub(super) fn is_test(path: &str) -> bool {
    path.ends_with("/test.rs") || path.contains("/test/")
}

impl Sum for Lines {
    fn sum<I: Iterator<Item = Self>>(lines: I) -> Self {
        lines.fold(Self::default(), |sum, one| Self {
            all: sum.all + one.all,
            code: sum.code + one.code,
        })
    }
}

impl fmt::Display for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} lines ({} of code)", self.all, self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::{Lines, is_test};

    #[test]
    fn tests_are_not_counted_and_comments_are_no_code() {
        let check =
            |text: &str, all, code| assert_eq!(Lines::of(text), Lines { all, code }, "{text}");
        check("//! Doc.\n\nuse a;\n\n/// Doc.\nfn f() {}\n", 6, 2);
        check("use a;\n#[cfg(test)]\nmod test;\nuse b;\n", 2, 2);
        check("use a;\n#[cfg(test)]\nuse {\n    b,\n    c,\n};\nuse d;\n", 2, 2);
        check("#[cfg(test)]\n#[inline]\nfn f() {\n    g(1);\n    h();\n}\nfn i() {}\n", 1, 1);
        check("struct A {\n    #[cfg(test)]\n    b: u8,\n    c: u8,\n}\n", 3, 3);
    }

    #[test]
    fn files_of_tests_are_recognized_by_their_path() {
        assert!(
            is_test("src/sdam/test.rs") && is_test("src/sdam/description/topology/test/rtt.rs")
        );
        assert!(!is_test("src/sdam/topology.rs"));
    }
}
