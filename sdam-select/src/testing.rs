//! Descriptions, and arbitrary topologies and criteria, for the tests of this crate.

use alloc::sync::Arc;
use core::time::Duration;
use std::{vec, vec::Vec};

use proptest::prelude::*;
use sdam_core::{
    address::ServerAddress,
    error::{Error, ErrorKind, Stage},
    ids::ServerId,
    read_preference::{ReadMode, ReadPreference, TagSet},
    server::{
        Rtt, ServerDescription,
        ServerType::{self, RsSecondary},
    },
    time::Instant,
    topology::{TopologyDescription, TopologyType},
};

use crate::{
    candidate::{Candidates, Selector},
    criteria::Criteria,
};

/// Returns the address of the server with this number: `s01:27017` and so on.
pub(crate) fn address(number: u64) -> ServerAddress {
    ServerAddress::new(&std::format!("s{number:02}"), 27017)
}

/// Returns a server of this type. If the type counts as available, the server has a round-trip time
/// of 5 ms.
pub(crate) fn server(number: u64, server_type: ServerType) -> ServerDescription {
    let mut server = ServerDescription::unknown(ServerId::from_u64(number), address(number));
    server.server_type = server_type;
    if server_type.is_available() {
        server.wire_versions.max = 21;
        with_rtt(server, 5)
    } else {
        server
    }
}

/// Returns a server that could not be reached.
pub(crate) fn failed(
    number: u64,
    kind: ErrorKind,
    stage: Stage,
    message: &str,
) -> ServerDescription {
    let error = Error::new(kind, stage, message);
    let id = ServerId::from_u64(number);
    ServerDescription::failed(id, address(number), error, Instant::EPOCH)
}

pub(crate) fn with_rtt(mut server: ServerDescription, millis: u64) -> ServerDescription {
    server.rtt = Some(Rtt { average: Duration::from_millis(millis), ..Rtt::default() });
    server
}

pub(crate) fn tags(tags: &[(&str, &str)]) -> TagSet {
    tags.iter().copied().collect()
}

pub(crate) fn topology(
    topology_type: TopologyType,
    servers: impl IntoIterator<Item = ServerDescription>,
) -> TopologyDescription {
    TopologyDescription::new(topology_type, servers)
}

/// Returns topologies of all types with servers of all types, including combinations that SDAM
/// never yields.
pub(crate) fn any_topology() -> impl Strategy<Value = TopologyDescription> {
    let types = prop_oneof![5 => prop::sample::select(ServerType::ALL), 1 => Just(RsSecondary)];
    // The dates are multiples of 20 s, so that staleness often equals the limit.
    let write = prop::option::weighted(0.9, (0_i64..15).prop_map(|number| number * 20_000));
    let update = prop::option::weighted(0.9, (45_u64..55).prop_map(|number| number * 20_000));
    let fields = (types, prop::option::weighted(0.9, 0_u64..40), 0..3_usize, write, update);
    let servers = fields.prop_map(|(server_type, rtt, dc, write, update)| {
        let mut of = server(1, server_type);
        of.rtt = None;
        if let Some(rtt) = rtt.filter(|_| server_type.is_available()) {
            of = with_rtt(of, rtt);
        }
        of.tags = tags(&[("dc", ["ny", "la", "sf"][dc])]);
        of.last_update_time = update.map(Instant::from_millis);
        of.last_write_date = write;
        of
    });
    let all = prop::sample::select(TopologyType::ALL);
    let topology_types = prop_oneof![6 => all, 1 => Just(TopologyType::ReplicaSetWithPrimary)];
    let servers = prop::collection::vec(servers, 0..8);
    (topology_types, servers).prop_map(|(topology_type, servers)| {
        let servers = servers.into_iter().zip(1..).map(|(mut server, number)| {
            server.address = address(number);
            server
        });
        topology(topology_type, servers)
    })
}

/// Returns valid criteria of all kinds. Servers 1 to 8 may be deprioritized, and a selector may
/// drop every second server.
pub(crate) fn any_criteria() -> impl Strategy<Value = Criteria> {
    let modes = prop::sample::select(&ReadMode::ALL[1..]);
    let sets = [&[("dc", "ny")][..], &[("dc", "la")], &[("dc", "none")], &[]].map(tags);
    let sets = prop::sample::select(Vec::from(sets));
    let limit = prop::option::of(prop::sample::select(vec![0, 90, 150]));
    let reads = (modes, prop::collection::vec(sets, 0..3), limit);
    let reads = reads.prop_map(|(mode, sets, limit)| {
        let mut preference = ReadPreference::new(mode).with_tag_sets(sets);
        preference.max_staleness = limit.map(Duration::from_secs);
        Criteria::read(preference).unwrap()
    });
    let fixed = prop::sample::select(vec![Criteria::write(), Criteria::primary()]);
    let deprioritized = prop::collection::vec(1_u64..9, 0..4);
    let drops_odd = any::<bool>();
    (prop_oneof![4 => reads, 1 => fixed], deprioritized, drops_odd).prop_map(
        |(criteria, deprioritized, drops_odd)| {
            let criteria = criteria.with_deprioritized(deprioritized.into_iter().map(address));
            if !drops_odd {
                return criteria;
            }
            let odd = |suitable: &mut Candidates<'_>| {
                suitable.retain(|candidate| candidate.index.is_multiple_of(2));
            };
            let odd: Arc<dyn Selector> = Arc::new(odd);
            criteria.with_selector(odd)
        },
    )
}
