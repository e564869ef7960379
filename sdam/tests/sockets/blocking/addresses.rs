//! Deployments that cannot be reached by their members' names.

use sdam::{AddressTable, BlockingTopology, Criteria, ServerAddress, Stage};
use sdam_live::{Socks, or_skip};
use sdam_sim::serve::{Builder, ReplicaSet};

use super::{start, write};

#[test]
fn a_set_with_unknown_names_fails_over_through_a_table_of_published_ports() {
    let name = |index, _| ServerAddress::new(&format!("mongo-{index}.invalid"), 27017);
    let set = ReplicaSet::build(Builder::replica_set(3).name(name)).unwrap();
    let table = AddressTable::from_iter(set.places().to_vec());
    let uri = format!("{}&serverSelectionTryOnce=false", set.uri());
    let builder = BlockingTopology::builder(&uri).unwrap().translate(table);
    let mut topology = builder.blocking().unwrap();
    let first = write(&mut topology);
    set.step_down().unwrap();
    let second = write(&mut topology);
    assert_ne!(first, second);
    for server in topology.description().servers() {
        assert!(server.address.host().ends_with(".invalid"));
    }
}

#[test]
fn a_frozen_proxy_times_out_and_a_thawed_one_leads_to_the_servers() {
    let Some(socks) = or_skip(Socks::start()).unwrap() else {
        return;
    };
    let set = ReplicaSet::start(1).unwrap();
    let (host, port) = (socks.address().ip(), socks.address().port());
    let proxy = format!("proxyHost={host}&proxyPort={port}&connectTimeoutMS=300");
    let mut topology = start(set.uri(), &proxy);
    socks.sigstop().unwrap();
    topology.select(&Criteria::write()).unwrap_err();
    let error = topology.description().servers()[0].error.clone().unwrap();
    assert_eq!(error.stage(), Stage::Proxy);
    assert!(error.is_timeout(), "{error}");
    assert!(error.message().ends_with("the proxy did not answer in time"));
    socks.sigcont().unwrap();
    let mut topology = start(set.uri(), &proxy);
    topology.select(&Criteria::write()).unwrap();
}
