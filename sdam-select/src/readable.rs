//! Checks whether a topology has a readable server (SDAM Monitoring: "hasReadableServer").

use sdam_core::{
    read_preference::{ReadMode, ReadPreference},
    topology::{TopologyDescription, TopologyType},
};

use crate::{criteria::check_staleness, settings::Settings, suitability::Suitability};

/// Returns whether some server can be read from, with `preference` if it is given.
///
/// Returns false for a preference that selection would reject.
pub fn has_readable_server(
    topology: &TopologyDescription,
    settings: &Settings,
    preference: Option<&ReadPreference>,
) -> bool {
    // Without a preference, a replica set is readable if it has a primary.
    let primary = ReadPreference::new(ReadMode::Primary);
    let preference = preference.unwrap_or(&primary);
    preference.validate().is_ok()
        && check_staleness(topology, settings, preference).is_ok()
        && Suitability::for_preference(topology, settings, Some(preference), &[])
            .any_suitable(topology)
}

/// Returns whether reads with `preference` can succeed: there is a readable server, the client is
/// compatible with the servers, and on a direct connection the server holds data.
///
/// Its counterpart is [`TopologyDescription::accepts_writes`].
pub fn accepts_reads(
    topology: &TopologyDescription,
    settings: &Settings,
    preference: &ReadPreference,
) -> bool {
    topology.is_compatible()
        && has_readable_server(topology, settings, Some(preference))
        && (topology.topology_type() != TopologyType::Single
            || topology.servers().iter().any(|server| server.server_type.is_data_bearing()))
}

#[cfg(test)]
mod tests {
    use sdam_core::server::ServerType::{
        self, LoadBalancer, Mongos, PossiblePrimary, RsArbiter, RsGhost, RsOther, RsPrimary,
        RsSecondary, Standalone, Unknown,
    };
    use sdam_core::topology::TopologyType;

    use super::*;
    use crate::testing::{server, topology};

    fn readable(topology: &TopologyDescription, mode: Option<ReadMode>) -> bool {
        let preference = mode.map(ReadPreference::new);
        has_readable_server(topology, &Settings::default(), preference.as_ref())
    }

    #[test]
    fn readable_and_writable_follow_the_table() {
        // The last expected value is for writes, and the others are for reads (A-20, J-50).
        let check = |topology_type, types: &[ServerType], expected: [bool; 4]| {
            let servers = types.iter().zip(1..).map(|(of, number)| server(number, *of));
            let topology = topology(topology_type, servers);
            let actual = [
                readable(&topology, None),
                readable(&topology, Some(ReadMode::Primary)),
                readable(&topology, Some(ReadMode::Secondary)),
                topology.has_writable_server(),
            ];
            assert_eq!(actual, expected, "{topology_type} {types:?}");
        };
        let (no, yes) = ([false; 4], [true; 4]);
        check(TopologyType::Unknown, &[Unknown], no);
        check(TopologyType::Single, &[Unknown], no);
        check(TopologyType::Single, &[Standalone], yes);
        check(TopologyType::Single, &[RsSecondary], yes);
        check(TopologyType::ReplicaSetNoPrimary, &[], no);
        check(TopologyType::ReplicaSetNoPrimary, &[PossiblePrimary, RsArbiter], no);
        check(
            TopologyType::ReplicaSetNoPrimary,
            &[RsSecondary, Unknown],
            [false, false, true, false],
        );
        check(
            TopologyType::ReplicaSetWithPrimary,
            &[RsPrimary, Unknown],
            [true, true, false, true],
        );
        check(TopologyType::ReplicaSetWithPrimary, &[RsPrimary, RsSecondary], yes);
        check(TopologyType::Sharded, &[Unknown, Unknown], no);
        check(TopologyType::Sharded, &[Unknown, Mongos], yes);
        check(TopologyType::LoadBalanced, &[LoadBalancer], yes);
    }

    #[test]
    fn a_direct_connection_serves_what_the_type_of_its_server_does() {
        let check = |of: ServerType, reads, writes| {
            let topology = topology(TopologyType::Single, [server(1, of)]);
            let nearest = ReadPreference::new(ReadMode::Nearest);
            let actual = accepts_reads(&topology, &Settings::default(), &nearest);
            assert_eq!((actual, topology.accepts_writes()), (reads, writes), "{of}");
        };
        for of in [Standalone, Mongos, RsPrimary] {
            check(of, true, true);
        }
        check(RsSecondary, true, false);
        for of in [RsArbiter, RsOther, RsGhost, Unknown] {
            check(of, false, false);
        }
    }
}
