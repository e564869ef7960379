//! Observes a deployment with a client.

use std::sync::Arc;

use sdam::{Criteria, Topology};
use sdam_core::options::Options;
use sdam_select::diagnose::diagnose;

use super::line::Limits;
use crate::doctor::observation::Deployment;

/// Waits until every server has answered or failed, and then explains the selection of servers for
/// writes and for reads.
pub(super) async fn look(topology: &Topology, options: &Options, limits: &Limits) -> Deployment {
    // Ignore a timeout: the topology shows which servers have not answered.
    let _known = topology
        .wait_for(
            |now| {
                let mut servers = now.description().servers().iter();
                let all = servers.all(|server| server.last_update_time.is_some());
                all.then_some(())
            },
            limits.step.min(limits.left()),
        )
        .await;
    let description = Arc::clone(topology.snapshot().description());
    let read = Criteria::read(options.read_preference.clone());
    let read = topology.explain(&read.unwrap_or_else(|_| Criteria::primary()));
    let write = topology.explain(&Criteria::write());
    let mut diagnoses = diagnose(&description, &write);
    for diagnosis in diagnose(&description, &read) {
        if !diagnoses.contains(&diagnosis) {
            diagnoses.push(diagnosis);
        }
    }
    Deployment { topology: description, write, read, diagnoses }
}
