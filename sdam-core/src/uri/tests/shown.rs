//! The parts of connection strings that error messages show.

use super::*;
use crate::uri_options::HIDDEN;

#[test]
fn errors_show_the_wrong_part_unless_it_may_be_a_password() {
    let check = |text: &str, expected: &str| {
        let error = ConnectionString::parse(text).expect_err(text);
        assert_eq!(error.value(), expected, "{text}: {error}");
    };
    let host = |start: &str| format!("{start}:{HIDDEN}");
    check("mongodb://a:0", "a:0");
    check("mongodb://a:65536", "a:65536");
    check("mongodb://a:1-2", "a:1-2");
    check("mongodb://a:65536,b", "a:65536");
    check("mongodb://a b", "a b");
    check("mongodb://a:b", &host("a"));
    check("mongodb://a:1b", &host("a"));
    check("mongodb://a/b c", "b c");
    check("mongodb://u:p@a/b c", "b c");
    // The `/` may be part of a password that ends at the `@`.
    check("mongodb://u:p/q@a", HIDDEN);
}
