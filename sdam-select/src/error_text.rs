//! The one-sentence message of a selection error (Server Selection: "Server Selection Errors").

use alloc::{format, string::String, vec::Vec};

use sdam_core::{
    error::{Error, Stage},
    topology::TopologyDescription,
};

use crate::criteria::{Criteria, Operation};

/// Returns the message of a selection error, in the words of the Server Selection specification.
///
/// If some server is available, the message contains the criteria: a read preference that no member
/// matches, or the required server type. If no server is available, the message contains the
/// servers' errors: the one that all servers share, or otherwise each distinct error.
pub fn error_text(topology: &TopologyDescription, criteria: &Criteria) -> String {
    if let Some(error) = topology.compatibility_error() {
        return error.into();
    }
    let servers = topology.servers();
    let available = servers.iter().any(|it| it.server_type.is_available());
    if !available {
        let mut errors: Vec<String> = Vec::new();
        for error in servers.iter().filter_map(|server| server.error.as_ref()) {
            let error = server_error_text(error);
            if !errors.contains(&error) {
                errors.push(error);
            }
        }
        if !errors.is_empty() {
            return errors.join(", ");
        }
    }
    let operation = criteria.operation_on(topology);
    let reads_from_members = matches!(operation, Operation::Read(_))
        && (topology.topology_type().is_replica_set() || !available);
    if reads_from_members {
        format!("No server available for {operation}")
    } else {
        format!("No servers are suitable for {operation}")
    }
}

fn server_error_text(error: &Error) -> String {
    match error.stage() {
        Stage::Auth => format!("Authentication failed: {}", error.message()),
        _ => format!("{error:#}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sdam_core::{
        error::ErrorKind,
        read_preference::{ReadMode, ReadPreference},
        server::ServerType::{Mongos, RsSecondary, Unknown},
        topology::TopologyType::{self, ReplicaSetNoPrimary, Sharded},
    };

    use super::*;
    use crate::testing::{failed, server, tags, topology};

    fn read(preference: ReadPreference) -> Criteria {
        Criteria::read(preference).unwrap()
    }

    #[test]
    fn the_text_has_the_read_preference_if_no_available_member_matches() {
        // The error message contains the mode, the tags and the limit (L-80).
        let members = topology(ReplicaSetNoPrimary, [server(1, RsSecondary)]);
        let check = |criteria: &Criteria, text| assert_eq!(error_text(&members, criteria), text);
        let nearest = || {
            let tags = [tags(&[("dc", "la")])];
            ReadPreference::new(ReadMode::Nearest).with_tag_sets(tags.into())
        };
        let text = "No server available for query with ReadPreference primary";
        check(&read(ReadPreference::default()), text);
        check(
            &read(nearest()),
            "No server available for query with ReadPreference nearest and tag set list [{dc: la}]",
        );
        check(
            &read(nearest().with_max_staleness(Duration::from_secs(90))),
            "No server available for query with ReadPreference nearest, tag set list [{dc: la}], \
             and `maxStalenessSeconds` 90",
        );
        check(&Criteria::write(), "No servers are suitable for write operation");
        // The members are too old for the aggregation to run on a secondary (L-6).
        let mut old = server(1, RsSecondary);
        old.wire_versions.max = 9;
        assert_eq!(
            error_text(&topology(ReplicaSetNoPrimary, [old]), &read(nearest()).with_write_stage()),
            "No server available for query with ReadPreference primary"
        );
    }

    #[test]
    fn the_text_has_the_criteria_on_other_topologies_with_an_available_server() {
        // A selector has dropped the mongos (L-81).
        let routers = topology(Sharded, [server(1, Mongos), server(2, Unknown)]);
        let text = "No servers are suitable for query with ReadPreference primary";
        assert_eq!(error_text(&routers, &read(ReadPreference::default())), text);
    }

    #[test]
    fn the_text_has_the_errors_if_no_server_is_available() {
        // The error message contains each distinct error once (L-81).
        let refused = || (ErrorKind::Network, Stage::Connect, "refused");
        let slow = || (ErrorKind::Timeout, Stage::Hello, "no reply");
        let check = |errors: &[(ErrorKind, Stage, &str)], text| {
            let servers = errors
                .iter()
                .zip(1..)
                .map(|((kind, stage, message), number)| failed(number, *kind, *stage, message));
            let topology = topology(TopologyType::Unknown, servers);
            assert_eq!(error_text(&topology, &Criteria::write()), text);
        };
        check(&[refused(), refused()], "network error at connect: refused");
        let text = "network error at connect: refused, timeout at hello: no reply";
        check(&[refused(), slow(), refused()], text);
        let text = "Authentication failed: bad password";
        check(&[(ErrorKind::Command, Stage::Auth, "bad password")], text);
        check(&[], "No servers are suitable for write operation");
    }
}
