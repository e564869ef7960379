//! L-31: read preferences that a mongos refuses.

use bson::{Bson, Document, doc};
use sdam_sim::version::ServerVersion;

use crate::support::{Fixture, code, is_ok};

/// Returns the error code of a read with this preference; `None` if it succeeds.
fn refusal(fixture: &mut Fixture, preference: impl Into<Bson>) -> Option<i32> {
    let find = doc! { "find": "things", "$readPreference": preference.into(), "$db": "test" };
    let reply = fixture.call_member(0, &find);
    (!is_ok(&reply)).then(|| code(&reply))
}

fn limited(mode: &str, seconds: impl Into<Bson>) -> Document {
    doc! { "mode": mode, "maxStalenessSeconds": seconds.into() }
}

#[test]
fn l_31_limits_on_staleness_are_whole_seconds_from_90_on_and_not_for_primaries() {
    let mut fixture = Fixture::sharded(1);
    let mut check = |preference: Document, expected: Option<i32>| {
        let found = refusal(&mut fixture, preference.clone());
        assert_eq!(found, expected, "{preference}");
    };
    check(limited("secondary", 90), None);
    check(limited("nearest", 90_i64), None);
    check(limited("nearest", 90.0), None);
    check(limited("primary", 0), None);
    check(limited("primary", 120), Some(2));
    check(limited("secondary", 89), Some(160));
    check(limited("primary", 1), Some(160));
    check(limited("secondary", 90.5), Some(2));
    check(limited("secondary", "90"), Some(14));
    check(limited("secondary", -1), Some(2));
}

#[test]
fn l_31b_mode_and_tags_are_checked_and_unknown_fields_are_ignored() {
    let mut fixture = Fixture::sharded(1);
    let mut check = |preference: Bson, expected: Option<i32>| {
        let found = refusal(&mut fixture, preference.clone());
        assert_eq!(found, expected, "{preference}");
    };
    let tags = |mode: &str, tags: Bson| doc! { "mode": mode, "tags": tags }.into();
    for mode in [
        "primary",
        "primaryPreferred",
        "secondary",
        "secondaryPreferred",
        "nearest",
    ] {
        check(doc! { "mode": mode, "surprise": 1 }.into(), None);
    }
    check(doc! { "mode": "Nearest" }.into(), Some(2));
    check(doc! { "mode": 1 }.into(), Some(14));
    check(doc! {}.into(), Some(4));
    check("nearest".into(), Some(14));
    let some = || Bson::Array(vec![doc! { "dc": "ny" }.into(), doc! {}.into()]);
    let empty = || Bson::Array(vec![doc! {}.into()]);
    check(tags("nearest", some()), None);
    check(tags("primary", some()), Some(2));
    check(tags("primary", empty()), None);
    check(tags("nearest", "ny".into()), Some(14));
    let mut old = Fixture::replica_set_of(1, ServerVersion::V4_2);
    assert_eq!(refusal(&mut old, doc! { "mode": "any" }), Some(9));
}
