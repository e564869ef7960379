//! The unified test format: files, tests and requirements.
//!
//! Only what the files here use is defined; any other field, operation, entity or event of the
//! format is refused by name.

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny},
};
use serde_json::Value;

use super::{Kind, entity::Entity, log::ExpectedLog, operation::Operation};
use crate::fields::read;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct File {
    #[serde(rename = "description")]
    _description: IgnoredAny,
    schema_version: Version,
    pub(super) run_on_requirements: Option<Vec<Requirement>>,
    #[serde(default)]
    pub(super) create_entities: Vec<Entity>,
    #[serde(rename = "_yamlAnchors")]
    _yaml_anchors: Option<IgnoredAny>,
    #[serde(deserialize_with = "tests")]
    pub(super) tests: Vec<Test>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Test {
    pub(super) description: String,
    pub(super) run_on_requirements: Option<Vec<Requirement>>,
    pub(super) operations: Vec<Operation>,
    pub(super) expect_log_messages: Vec<ExpectedLog>,
}

/// One alternative of the requirements on a deployment.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Requirement {
    topologies: Option<Vec<Kind>>,
    #[serde(default)]
    min_server_version: Version,
    max_server_version: Option<Version>,
    #[serde(rename = "serverless")]
    _serverless: Option<Serverless>,
}

/// Whether serverless deployments are allowed. None is one here, so no file may require it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Serverless {
    Allow,
    Forbid,
}

/// A major and a minor version.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(try_from = "String")]
struct Version((u32, u32));

impl TryFrom<String> for Version {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut parts = text.split('.').map(str::parse);
        match (parts.next(), parts.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => Ok(Self((major, minor))),
            _ => Err(format!("{text} is not a version")),
        }
    }
}

impl File {
    /// Reads a file; an error names the test and the field.
    pub(super) fn read(file: &Value) -> Result<Self, String> {
        let file: Self = read(file)?;
        match file.schema_version.0 {
            (1, _) => Ok(file),
            other => Err(format!("schemaVersion is {other:?}, expected 1")),
        }
    }

    /// Returns the kind of deployment to run against: the first one that the file names.
    pub(super) fn kind(&self) -> Kind {
        let requirements = self.run_on_requirements.iter().flatten();
        let mut kinds = requirements.filter_map(|it| it.topologies.as_ref()?.first());
        kinds.next().copied().unwrap_or(Kind::ReplicaSet)
    }
}

/// Fails unless one of the requirements is met: no test may be skipped.
pub(super) fn check(
    requirements: &[Requirement],
    kind: Kind,
    version: (u32, u32),
) -> Result<(), String> {
    let is_met = |it: &Requirement| {
        let kinds = it.topologies.as_ref();
        kinds.is_none_or(|kinds| kinds.contains(&kind))
            && it.min_server_version.0 <= version
            && it.max_server_version.is_none_or(|max| version <= max.0)
    };
    if requirements.iter().any(is_met) {
        return Ok(());
    }
    Err(format!(
        "{kind:?} of release {version:?} does not meet {requirements:?}"
    ))
}

/// Reads the tests one by one, so that an error names the test.
fn tests<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Test>, D::Error> {
    let tests = Vec::<Value>::deserialize(deserializer)?;
    let tests = tests.iter().map(|test| {
        read(test).map_err(|error| D::Error::custom(format!("{}: {error}", test["description"])))
    });
    tests.collect()
}
