//! A replica set with TLS behind an SRV record, during failovers.

use std::sync::Arc;

use futures::executor::block_on;
use sdam::TopologyDescription;
use sdam_dns::DnsResolver;
use sdam_live::{Certificates, Dns, MemberSpec, Record, ReplicaSet, ServerTls, or_skip};
use sdam_tls::Rustls;
use sdam_transport::translate::AddressTable;

use super::{certificates, with_client};
use crate::{
    failover::is_complete,
    observer::Observer,
    runtime::{Host, version},
};

/// Starts a set that requires client certificates. If a client connects to a name such as
/// `a.sdam.example`, the member learns this through SNI, and then uses names of this form for all
/// members in its hello replies.
fn replica_set(certificates: &Arc<Certificates>) -> Option<ReplicaSet> {
    let member = |name| MemberSpec::new().horizon(&format!("{name}.sdam.example"));
    let tls = ServerTls::new(certificates).require_client_certificates();
    let set = ReplicaSet::builder(version()).tls(tls);
    or_skip(set.start(&["a", "b", "c"].map(member))).unwrap()
}

/// Returns the names by which external clients know the members.
fn outside(set: &ReplicaSet) -> Vec<String> {
    let ports = set.members().map(|member| member.address().port());
    let names = ["a", "b", "c"].into_iter().zip(ports);
    names.map(|(name, port)| format!("{name}.sdam.example:{port}")).collect()
}

fn primary(topology: &TopologyDescription) -> Option<String> {
    Some(topology.primary()?.address.to_string())
}

#[test]
#[ignore = "deep: real servers"]
fn a_set_with_tls_behind_an_srv_record_is_followed_through_failovers() {
    let certificates = certificates();
    let Some(set) = replica_set(&certificates) else {
        return;
    };
    let names = outside(&set);
    // The SRV record names only one member, which is enough to find all members.
    let (seed, port) = names[0].split_once(':').unwrap();
    let records = [
        Record::srv("_mongodb._tcp.cluster.sdam.example", seed, port.parse().unwrap()),
        Record::txt("cluster.sdam.example", ["replicaSet=", set.name()]),
    ];
    let Some(dns) = or_skip(Dns::start(records)).unwrap() else {
        return;
    };
    let mut host = Host::start().with_tls(Rustls::ring());
    let resolver = DnsResolver::with_servers([dns.address()]);
    host.runtime.backend.resolver = Some(Arc::new(resolver));
    let uri = format!(
        "mongodb+srv://cluster.sdam.example/?heartbeatFrequencyMS=500&{}",
        with_client(&certificates),
    );
    let options = block_on(sdam::resolve(&uri, &host.runtime.backend)).unwrap();
    let places = names.iter().zip(set.members());
    let places: Vec<_> = places.map(|(name, member)| format!("{name}={}", member.host())).collect();
    let table: AddressTable = places.join(",").parse().unwrap();
    let observer = Observer::build(host, options, |builder| builder.translate(table));

    let (found, mark) = observer.wait_for_topology("the whole set", 0, is_complete);
    let known = found.servers().iter().map(|server| server.address.to_string());
    assert_eq!(known.collect::<Vec<_>>(), names, "the names for external clients");
    let old = set.step_down().unwrap();
    let (_, mark) = observer.wait_for_topology("another primary", mark, |topology| {
        primary(topology).is_some_and(|primary| primary != names[old])
    });
    let victim = set.primary().unwrap();
    set.member(victim).kill().unwrap();
    let (_, mark) = observer.wait_for_topology("the next primary", mark, |topology| {
        primary(topology).is_some_and(|primary| primary != names[victim])
    });
    set.member(victim).restart().unwrap();
    observer.wait_for_topology("the whole set again", mark, is_complete);
    observer.finish();
}
