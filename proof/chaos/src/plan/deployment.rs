//! The deployment that a seed determines.

use sdam_core::{address::ServerAddress, rng::Rng};
use sdam_sim::{
    Blueprint,
    config::{MemberConfig, SetConfig},
    timing::Timing,
    version::ServerVersion,
};

use super::{Kind, Shape, access::mongos, first, host, pick};

/// A deployment and the properties that the fault generator needs.
pub(super) struct Deployed {
    pub(super) shape: Shape,
    pub(super) blueprint: Blueprint,
    /// The number of processes.
    pub(super) processes: u64,
    /// True if the last process is initially not a member of the set.
    pub(super) spare: bool,
}

impl Deployed {
    pub(super) fn address(&self, process: u64) -> ServerAddress {
        match self.shape {
            Shape::Sharded => mongos(process),
            Shape::LoadBalanced => first(),
            Shape::ReplicaSet | Shape::Direct | Shape::Standalone => host(process),
        }
    }
}

/// The releases that are too old for the client.
pub(super) const TOO_OLD: &[ServerVersion] = ServerVersion::SERIES.split_at(2).0;
/// The releases that the client supports.
pub(super) const VERSIONS: &[ServerVersion] = ServerVersion::SERIES.split_at(2).1;

pub(super) fn deploy(kind: Kind, rng: &mut Rng) -> Deployed {
    let version = pick(rng, VERSIONS);
    let shape = match (kind, rng.below(100)) {
        (Kind::Failover | Kind::Partition, _) | (_, 0..70) => Shape::ReplicaSet,
        (_, 70..82) => Shape::Sharded,
        (_, 82..88) => Shape::Standalone,
        (_, 88..94) => Shape::Direct,
        _ => Shape::LoadBalanced,
    };
    let (processes, blueprint) = match shape {
        Shape::ReplicaSet | Shape::Direct => return replica_set(kind, shape, version, rng),
        Shape::Sharded => {
            let processes = rng.below(3) + 1;
            let blueprint = Blueprint::sharded(processes as u16).at((0..processes).map(mongos));
            (processes, blueprint.version(version))
        }
        Shape::Standalone => (1, Blueprint::standalone().at([first()]).version(version)),
        Shape::LoadBalanced => {
            let processes = rng.below(3) + 1;
            let blueprint =
                Blueprint::load_balanced(processes as u16).at((0..processes).map(|_| first()));
            (processes, blueprint.version(version.max(ServerVersion::V5_0)))
        }
    };
    Deployed { shape, blueprint, processes, spare: false }
}

fn replica_set(kind: Kind, shape: Shape, version: ServerVersion, rng: &mut Rng) -> Deployed {
    let min = if matches!(kind, Kind::Random | Kind::Scan) { 1 } else { 3 };
    let members = min + rng.below(6 - min);
    let mut config = SetConfig::new("rs", (0..members).map(host));
    let (mut arbiter, mut hidden) = (false, false);
    for own in config.members.iter_mut().skip(1) {
        let plain = || MemberConfig::new(own.address.clone());
        *own = match rng.below(20) {
            0 | 1 if !arbiter => {
                arbiter = true;
                plain().arbiter()
            }
            2 | 3 if !hidden => {
                hidden = true;
                plain().hidden()
            }
            4 | 5 => plain().priority(2.0),
            6 => plain().priority(0.0),
            7 => plain().non_voting(),
            _ => plain(),
        };
        if rng.below(3) == 0 {
            *own = own.clone().tag("dc", pick(rng, &["ny", "la"]));
        }
    }
    let spare = rng.below(3) == 0;
    let mut blueprint = Blueprint::replica_set(config).version(version);
    // Shorter intervals allow more elections in a run.
    if rng.below(3) == 0 {
        blueprint = blueprint.timing(Timing::fast());
    }
    if spare {
        blueprint = blueprint.spares(1).at((0..=members).map(host));
    }
    Deployed { shape, blueprint, processes: members + u64::from(spare), spare }
}
