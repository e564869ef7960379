use serde_json::json;

use super::*;

fn check_file(file: &Json) -> Result<(), String> {
    check(file)?;
    scan(file, Kind::ReplicaSet)
}

#[test]
fn an_expected_error_passes_unless_a_look_up_failed() {
    for uri in ["mongodb+srv://test4.test.build.10gen.cc", "mongodb+srv://a.b.c:1"] {
        let file = json!({ "uri": uri, "error": true });
        assert_eq!(check_file(&file), Ok(()));
        let failed = |_: &str| Err("no answer from the name server".to_owned());
        let difference = super::check_file(&file, failed, |_, _| Ok(())).unwrap_err();
        assert!(difference.contains("no answer"), "{difference}");
    }
}

#[test]
fn a_ping_that_fails_is_a_difference() {
    let uri = "mongodb+srv://test1.test.build.10gen.cc/?replicaSet=other";
    let difference = check_file(&json!({ "uri": uri })).unwrap_err();
    assert!(difference.contains("other"), "{difference}");
}
