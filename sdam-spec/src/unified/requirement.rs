//! The requirements of a file or test on a deployment.

use serde_json::Value;

use super::Kind;
use crate::json::{self, Object};

impl Kind {
    fn parse(value: &Value) -> Result<Self, String> {
        Ok(match json::text(value)? {
            "single" => Self::Single,
            "replicaset" => Self::ReplicaSet,
            "sharded" => Self::Sharded,
            "load-balanced" => Self::LoadBalanced,
            other => return Err(format!("{other} is not a kind of deployment")),
        })
    }
}

/// One alternative of the requirements.
struct Requirement {
    kinds: Option<Vec<Kind>>,
    at_least: Option<(u32, u32)>,
    at_most: Option<(u32, u32)>,
}

impl Requirement {
    fn parse(value: &Value) -> Result<Self, String> {
        let keys = [
            "topologies",
            "minServerVersion",
            "maxServerVersion",
            "serverless",
        ];
        let requirement = Object::new(value, "runOnRequirement", &keys)?;
        // No deployment here is serverless, so only requiring it fails.
        if requirement.read_optional("serverless", json::text)? == Some("require") {
            return Err("serverless deployments are not supported".to_owned());
        }
        let kinds = |value| json::list(value, Kind::parse);
        Ok(Self {
            kinds: requirement.read_optional("topologies", kinds)?,
            at_least: requirement.read_optional("minServerVersion", version)?,
            at_most: requirement.read_optional("maxServerVersion", version)?,
        })
    }

    fn admits(&self, kind: Kind, version: (u32, u32)) -> bool {
        self.kinds
            .as_ref()
            .is_none_or(|kinds| kinds.contains(&kind))
            && self.at_least.is_none_or(|least| least <= version)
            && self.at_most.is_none_or(|most| version <= most)
    }
}

/// Returns the kind of deployment that a file runs against: the first one that it names.
pub(super) fn kind(requirements: Option<&Value>) -> Result<Kind, String> {
    let requirements = requirements.map(|value| json::list(value, Requirement::parse));
    let requirements = requirements.transpose()?.unwrap_or_default();
    let mut kinds = requirements
        .iter()
        .filter_map(|it| it.kinds.as_ref()?.first());
    Ok(kinds.next().copied().unwrap_or(Kind::ReplicaSet))
}

/// Fails unless one of the requirements is met: no test may be skipped.
pub(super) fn check(value: &Value, kind: Kind, version: (u32, u32)) -> Result<(), String> {
    let requirements = json::list(value, Requirement::parse)?;
    if requirements.iter().any(|it| it.admits(kind, version)) {
        return Ok(());
    }
    Err(format!(
        "{kind:?} of release {version:?} does not meet {value}"
    ))
}

fn version(value: &Value) -> Result<(u32, u32), String> {
    let text = json::text(value)?;
    let mut parts = text.split('.').map(|part| part.parse().ok());
    match (parts.next().flatten(), parts.next()) {
        (Some(major), None) => Ok((major, 0)),
        (Some(major), Some(Some(minor))) => Ok((major, minor)),
        _ => Err(format!("{text} is not a version")),
    }
}
