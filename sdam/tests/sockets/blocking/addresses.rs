//! Deployments that cannot be reached by their members' names.

use sdam::{Criteria, error::Stage};
use sdam_live::{Socks, or_skip};
use sdam_sim::Blueprint;

use super::start;

#[test]
fn a_frozen_proxy_times_out_and_a_thawed_one_leads_to_the_servers() {
    let Some(socks) = or_skip(Socks::start()).unwrap() else {
        return;
    };
    let set = Blueprint::replica_set(1).serve().unwrap();
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
