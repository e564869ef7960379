use std::{string::ToString, vec};

use ::bson::{RawDocumentBuf, rawdoc};
use sdam_core::{
    server::ServerType::{LoadBalancer, Mongos, RsPrimary, RsSecondary, Standalone},
    topology::TopologyType::{LoadBalanced, ReplicaSetWithPrimary, Sharded, Single},
};

use super::*;
use crate::testing::tags;

const MODES: &[ReadMode] = ReadMode::ALL;

fn decode(bytes: Vec<u8>) -> RawDocumentBuf {
    RawDocumentBuf::from_bytes(bytes).unwrap()
}

/// Returns the modes for which `$readPreference` is sent with that same mode, and the modes for
/// which SecondaryOk is set.
fn sent(
    topology_type: TopologyType,
    server_type: ServerType,
    opcode: Opcode,
) -> (Vec<ReadMode>, Vec<ReadMode>) {
    let additions = |mode: &ReadMode| {
        let preference = ReadPreference::new(*mode);
        let added = Additions::for_read(topology_type, server_type, Some(&preference), opcode);
        let mode = added.read_preference.map(|document| document.mode);
        (mode, added.secondary_ok)
    };
    let documents = MODES.iter().filter(|mode| additions(mode).0 == Some(**mode));
    let flags = MODES.iter().filter(|mode| additions(mode).1);
    (documents.copied().collect(), flags.copied().collect())
}

#[test]
fn op_msg_sends_every_mode_but_primary_to_mongos_and_members() {
    // Mode primary is not sent, because it is the default (L-70, L-74).
    let not_primary = MODES[1..].to_vec();
    for (topology_type, server_type) in [
        (Sharded, Mongos),
        (Single, Mongos),
        (LoadBalanced, LoadBalancer),
        (ReplicaSetWithPrimary, RsPrimary),
        (ReplicaSetWithPrimary, RsSecondary),
        (Single, RsSecondary),
    ] {
        let (documents, flags) = sent(topology_type, server_type, Opcode::Msg);
        assert_eq!(documents, not_primary, "{topology_type} {server_type}");
        assert_eq!(flags, []);
    }
}

#[test]
fn op_msg_sends_primary_preferred_to_a_single_member_and_nothing_to_standalones() {
    // A member to which the client connects directly can always be read from (L-70, L-79).
    let primary = ReadPreference::default();
    let check = |topology_type, server_type, mode: Option<ReadMode>| {
        for preference in [None, Some(&primary)] {
            let added = Additions::for_read(topology_type, server_type, preference, Opcode::Msg);
            let document = mode.map(ReadPreferenceDocument::bare);
            assert_eq!(added.read_preference, document, "{topology_type} {server_type}");
        }
    };
    check(Single, RsSecondary, Some(ReadMode::PrimaryPreferred));
    check(Single, RsPrimary, Some(ReadMode::PrimaryPreferred));
    check(Single, Mongos, None);
    check(Single, Standalone, None);
    check(ReplicaSetWithPrimary, RsPrimary, None);
    assert_eq!(sent(Single, Standalone, Opcode::Msg).0, []);
}

#[test]
fn op_query_sets_secondary_ok_and_sends_a_document_only_to_mongos() {
    // With OP_QUERY, only routers get a read preference document (L-70, L-72).
    let check = |topology_type, server_type, documents: &[ReadMode], flags: &[ReadMode]| {
        assert_eq!(
            sent(topology_type, server_type, Opcode::Query),
            (documents.to_vec(), flags.to_vec()),
            "{topology_type} {server_type}"
        );
    };
    let explicit = [ReadMode::PrimaryPreferred, ReadMode::Secondary, ReadMode::Nearest];
    check(Sharded, Mongos, &explicit, &MODES[1..]);
    check(Single, Mongos, &explicit, &MODES[1..]);
    check(ReplicaSetWithPrimary, RsSecondary, &[], &MODES[1..]);
    check(Single, RsSecondary, &[], MODES);
    check(Single, Standalone, &[], MODES);
}

#[test]
#[expect(deprecated, reason = "servers before 8.0 still accept it")]
fn op_query_sends_secondary_preferred_only_with_further_options() {
    // SecondaryPreferred without further options is sent as the SecondaryOk flag alone (L-72).
    let check = |preference: ReadPreference, sent| {
        let added = Additions::for_read(Sharded, Mongos, Some(&preference), Opcode::Query);
        assert!(added.secondary_ok);
        assert_eq!(added.read_preference.is_some(), sent, "{preference:?}");
    };
    let preferred = || ReadPreference::new(ReadMode::SecondaryPreferred);
    check(preferred(), false);
    check(preferred().with_tag_sets(vec![tags(&[])]), false);
    check(preferred().with_tag_sets(vec![tags(&[("dc", "ny")])]), true);
    check(preferred().with_max_staleness(Duration::from_secs(90)), true);
    check(preferred().with_max_staleness(Duration::ZERO), false);
    check(preferred().with_hedge(false), true);
}

#[test]
fn run_command_sends_explicit_preferences_to_all_but_standalones() {
    // A standalone server gets the user's command unchanged (L-76).
    let check = |server_type, mode, sent| {
        let preference = ReadPreference::new(mode);
        let added = Additions::for_run_command(server_type, &preference);
        assert_eq!(added.read_preference.is_some(), sent, "{server_type} {mode}");
    };
    check(Mongos, ReadMode::SecondaryPreferred, true);
    check(RsSecondary, ReadMode::Nearest, true);
    check(RsSecondary, ReadMode::Primary, false);
    check(Standalone, ReadMode::Nearest, false);
}

#[test]
#[expect(deprecated, reason = "servers before 8.0 still accept it")]
fn read_preference_documents_have_exactly_the_fields_that_are_set() {
    // The value of a tag is a string (L-18, L-71, L-75, L-77).
    let check = |preference: ReadPreference, expected: RawDocumentBuf| {
        let command = ReadPreferenceDocument::new(&preference).append_to(rawdoc! {}.as_bytes());
        assert_eq!(decode(command.unwrap()), rawdoc! { "$readPreference": expected });
    };
    let nearest = || ReadPreference::new(ReadMode::Nearest);
    check(nearest(), rawdoc! { "mode": "nearest" });
    check(nearest().with_tag_sets(vec![tags(&[])]), rawdoc! { "mode": "nearest" });
    check(
        nearest().with_tag_sets(vec![tags(&[("rack", "1"), ("dc", "ny")]), tags(&[])]),
        rawdoc! { "mode": "nearest", "tags": [{ "dc": "ny", "rack": "1" }, {}] },
    );
    check(
        nearest().with_max_staleness(Duration::from_secs(120)).with_hedge(true),
        rawdoc! {
            "mode": "nearest", "maxStalenessSeconds": 120_i32, "hedge": { "enabled": true }
        },
    );
    check(nearest().with_max_staleness(Duration::ZERO), rawdoc! { "mode": "nearest" });
    check(
        nearest().with_max_staleness(Duration::from_secs(1 << 40)),
        rawdoc! { "mode": "nearest", "maxStalenessSeconds": 1_i64 << 40 },
    );
    check(
        nearest().with_hedge(false),
        rawdoc! { "mode": "nearest", "hedge": { "enabled": false } },
    );
    check(ReadPreference::default().with_hedge(true), rawdoc! { "mode": "primary" });
}

#[test]
fn commands_get_a_read_preference_field_and_queries_are_wrapped() {
    // A legacy query with a modifier is wrapped in `$query` (L-70, L-73).
    let preference = ReadPreference::new(ReadMode::Secondary);
    let document = ReadPreferenceDocument::new(&preference);
    let preference = rawdoc! { "mode": "secondary" };
    let command = rawdoc! { "find": "things", "$db": "test" };
    assert_eq!(
        decode(document.append_to(command.as_bytes()).unwrap()),
        rawdoc! {
            "find": "things", "$db": "test", "$readPreference": preference.clone()
        }
    );
    let query = rawdoc! { "x": 1_i32 };
    let wrapped = rawdoc! { "$query": query.clone(), "$readPreference": preference.clone() };
    assert_eq!(decode(document.modify_query(query.as_bytes()).unwrap()), wrapped);
    let modified = rawdoc! { "$query": query.clone(), "$orderby": { "x": 1_i32 } };
    assert_eq!(
        decode(document.modify_query(modified.as_bytes()).unwrap()),
        rawdoc! {
            "$query": query, "$orderby": { "x": 1_i32 }, "$readPreference": preference
        }
    );
    let empty = rawdoc! {};
    assert!(document.modify_query(empty.as_bytes()).is_ok());
}

#[test]
fn malformed_documents_are_refused() {
    let document = ReadPreferenceDocument::bare(ReadMode::Nearest);
    for bytes in [
        &b""[..],
        b"\x05\0\0",
        b"\x05\0\0\0",
        b"\x06\0\0\0\0",
        b"\x05\0\0\0\x01",
        b"\xff\xff\xff\xff\0",
    ] {
        for refused in [document.append_to(bytes), document.modify_query(bytes)] {
            let text = "the bytes are not framed as a BSON document";
            assert_eq!(refused.unwrap_err().to_string(), text);
        }
    }
}
