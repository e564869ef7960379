//! The faults of real servers.

use std::thread;

use bson::Document;
use sdam_live::{Error, ReplicaSet};

use crate::deployment::{Deployment, Servers};
use crate::schedule::{Fault, Kind};

/// Causes the fault, heals it after its time, and waits until the servers work again.
pub(crate) fn run(deployment: &Deployment, fault: &Fault) -> Result<(), Error> {
    let members = deployment.members();
    let member = members[fault.choice % members.len()];
    let hold = || thread::sleep(fault.hold);
    match (fault.kind, &deployment.servers) {
        (Kind::Kill, _) => {
            member.kill()?;
            hold();
            member.restart()?;
        }
        (Kind::Freeze, _) => {
            member.sigstop()?;
            hold();
            member.sigcont()?;
        }
        (Kind::FullDisk, _) => {
            member.fill_disk()?;
            hold();
            member.restart()?;
        }
        (Kind::StepDown, Servers::Set(set)) => {
            set.step_down()?;
            hold();
        }
        (Kind::Reconfigure, Servers::Set(set)) => reconfigure(set, fault.choice, hold)?,
        (Kind::Certificates, _) => {
            if let Some(certificates) = &deployment.certificates {
                certificates.renew()?;
            }
            for member in members {
                member.rotate_certificates()?;
            }
            hold();
        }
        (Kind::Dns, _) => {
            let mut hosts = Vec::new();
            if fault.choice.is_multiple_of(2) {
                hosts = deployment.hosts().split_off(members.len() - 1);
                hosts.push(deployment.absent_host());
            }
            deployment.list_hosts(&hosts)?;
            hold();
            deployment.list_hosts(&deployment.hosts())?;
        }
        (Kind::StepDown | Kind::Reconfigure, Servers::Standalone(_)) => {}
    }
    deployment.wait_until_settled()
}

/// Removes a secondary and adds it again, or makes a member more eligible than the others for a
/// time.
fn reconfigure(set: &ReplicaSet, choice: usize, hold: impl Fn()) -> Result<(), Error> {
    if choice.is_multiple_of(2) {
        let secondaries = set.secondaries();
        if let Some(index) = secondaries.get(choice / 2 % secondaries.len().max(1)) {
            set.remove(*index)?;
            hold();
            set.add_back(*index)?;
        }
        return Ok(());
    }
    let index = choice / 2 % set.size();
    set.reconfig(|config| set_priority(config, index, 2.0))?;
    hold();
    set.reconfig(|config| set_priority(config, index, 1.0))
}

fn set_priority(config: &mut Document, index: usize, priority: f64) {
    let members = config.get_array_mut("members").ok();
    let member = members.and_then(|members| members.get_mut(index)?.as_document_mut());
    if let Some(member) = member {
        member.insert("priority", priority);
    }
}
