//! The requirements that tests have for their deployment.

use std::fmt;

use bson::Document;
use serde::Deserialize;
use serde_json::{Map, Value};

/// A kind of deployment. Each kind has a name in `runOnRequirements`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
#[derive(strum::Display, strum::VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Kind {
    /// `single`: one server without a replica set.
    Single,
    /// `replicaset`: three members.
    #[strum(serialize = "replicaset")]
    ReplicaSet,
    /// `sharded`: two mongoses.
    #[serde(alias = "sharded-replicaset")]
    Sharded,
    /// `load-balanced`: mongoses behind a load balancer.
    #[serde(rename = "load-balanced")]
    LoadBalanced,
}

impl Kind {
    /// Every value, in declaration order.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;
}

/// The properties of a deployment that tests may require.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Environment {
    /// The kind of deployment.
    pub kind: Kind,
    /// The servers' version: major, minor and patch.
    pub release: [u32; 3],
    /// True if clients must authenticate.
    pub authentication: bool,
}

/// An element of `runOnRequirements`. A deployment must meet at least one of these elements.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Requirement {
    topologies: Option<Vec<Kind>>,
    #[serde(default)]
    min_server_version: Version,
    max_server_version: Option<Version>,
    auth: Option<bool>,
    #[serde(default)]
    server_parameters: Map<String, Value>,
    #[serde(rename = "serverless")]
    _serverless: Option<Serverless>,
}

/// The value of `serverless` in a file. There are no serverless deployments, so the value `require`
/// is not supported.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Serverless {
    Allow,
    Forbid,
}

/// A server version. Components that a file omits are 0.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Version(pub(crate) [u32; 3]);

impl fmt::Display for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.short_release())
    }
}

impl Environment {
    /// Returns the major and minor version, with a star if authentication is required.
    pub fn short_release(&self) -> String {
        let [major, minor, _] = self.release;
        let star = if self.authentication { "*" } else { "" };
        format!("{major}.{minor}{star}")
    }

    /// Returns whether the servers apply a fail point as the tests expect. Servers before 4.4.7 do
    /// not apply a fail point for `hello` with an application name to a connection's first hello,
    /// because they compare the name before this hello has set it (SERVER-49336).
    pub(crate) fn applies(&self, fail_point: &Document) -> bool {
        let Ok(data) = fail_point.get_document("data") else {
            return true;
        };
        let commands = data.get_array("failCommands").into_iter().flatten();
        let mut commands = commands.filter_map(|command| command.as_str());
        let is_early = data.contains_key("appName") && commands.any(|name| name == "hello");
        !is_early || self.release >= [4, 4, 7]
    }

    /// Returns whether the servers support `hello`, which clients behind a load balancer send
    /// first.
    pub(crate) fn knows_hello(&self) -> bool {
        let lacks_it =
            self.release < [4, 2, 10] || (self.release >= [4, 4, 0] && self.release < [4, 4, 2]);
        !lacks_it
    }

    /// Returns true if at least one of `requirements` is met, or if there are no requirements.
    pub(crate) fn meets(&self, requirements: Option<&[Requirement]>) -> bool {
        requirements.is_none_or(|alternatives| alternatives.iter().any(|it| it.is_met(self)))
    }

    /// Returns the value of a server parameter in the test deployments.
    fn parameter(name: &str) -> Value {
        match name {
            "enableTestCommands" => true.into(),
            "requireApiVersion" | "acceptApiVersion2" => false.into(),
            _ => Value::Null,
        }
    }
}

impl Requirement {
    pub(crate) fn asks_for_authentication(&self) -> bool {
        self.auth == Some(true)
    }

    fn is_met(&self, environment: &Environment) -> bool {
        let mut parameters = self.server_parameters.iter();
        self.topologies.as_ref().is_none_or(|kinds| kinds.contains(&environment.kind))
            && self.min_server_version.0 <= environment.release
            && self.max_server_version.is_none_or(|max| environment.release <= max.0)
            && self.auth.is_none_or(|auth| auth == environment.authentication)
            && parameters.all(|(name, value)| Environment::parameter(name) == *value)
    }
}

impl TryFrom<String> for Version {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let error = || format!("{text} is not a version");
        let mut numbers = [0; 3];
        let mut parts = text.split('.');
        for (number, part) in numbers.iter_mut().zip(&mut parts) {
            *number = part.parse().map_err(|_| error())?;
        }
        match parts.next() {
            None if text.contains('.') => Ok(Self(numbers)),
            _ => Err(error()),
        }
    }
}
