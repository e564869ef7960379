use serde_json::json;

use super::*;

/// A modification of a test file.
type Change = fn(&mut Json);

fn check_file(file: &Json) -> Result<(), String> {
    check(file)?;
    scan(file, Kind::ReplicaSet)
}

#[test]
fn a_difference_of_each_kind_is_found() {
    let file = |change: Change| {
        let mut file = json!({
            "uri": "mongodb+srv://u:p@test1.test.build.10gen.cc/db?replicaSet=repl0",
            "seeds": [
                "localhost.test.build.10gen.cc:27017",
                "localhost.test.build.10gen.cc:27018",
            ],
            "numSeeds": 2,
            "hosts": ["localhost:27017", "localhost:27018", "localhost:27019"],
            "numHosts": 3,
            "options": { "replicaSet": "repl0", "ssl": true },
            "parsed_options": { "user": "u", "password": "p", "db": "db" },
            "ping": false,
        });
        change(&mut file);
        check_file(&file)
    };
    assert_eq!(file(|_| {}), Ok(()));
    let changes: &[(Change, &str)] = &[
        (|file| file["seeds"] = json!([]), "the seeds are"),
        (|file| file["numSeeds"] = json!(1), "expected 1 seeds"),
        (|file| file["hosts"] = json!(["a:1"]), "the hosts are"),
        (|file| file["numHosts"] = json!(2), "expected 2 hosts"),
        (|file| file["options"]["ssl"] = json!(false), "ssl is"),
        (|file| file["options"]["replicaSet"] = json!("x"), "replicaSet is"),
        (|file| file["options"]["nonsense"] = json!(1), "nonsense is None"),
        (|file| file["parsed_options"]["user"] = json!("x"), "user is"),
        (|file| file["parsed_options"]["db"] = json!("x"), "db is"),
        (|file| file["parsed_options"]["x"] = json!(1), "an unknown parsed option"),
        (|file| file["error"] = json!(true), "expected an error"),
        (|file| file["surprise"] = json!(1), "unknown field"),
        (|file| file["uri"] = json!("mongodb+srv://test4.test.build.10gen.cc"), "there is none"),
    ];
    for (change, expected) in changes {
        let difference = file(*change).unwrap_err();
        assert!(difference.contains(expected), "{difference}");
    }
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
