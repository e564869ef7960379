//! The environment that a client runs in, as reported in its handshake metadata.

use std::{collections::BTreeMap, path::Path};

use super::{cut, set};

/// The environment variables that client metadata uses.
const VARIABLES: [&str; 13] = [
    "AWS_EXECUTION_ENV",
    "AWS_LAMBDA_FUNCTION_MEMORY_SIZE",
    "AWS_LAMBDA_RUNTIME_API",
    "AWS_REGION",
    "FUNCTIONS_WORKER_RUNTIME",
    "FUNCTION_MEMORY_MB",
    "FUNCTION_NAME",
    "FUNCTION_REGION",
    "FUNCTION_TIMEOUT_SEC",
    "KUBERNETES_SERVICE_HOST",
    "K_SERVICE",
    "VERCEL",
    "VERCEL_REGION",
];

/// The environment of a client, which consists of environment variables, the container and the
/// operating system.
///
/// The default environment is empty: no variables, no container, and an unknown operating system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    variables: BTreeMap<Box<str>, Box<str>>,
    /// True if the marker of a Docker container, `/.dockerenv`, exists.
    pub(super) docker: bool,
    pub(super) os: OperatingSystem,
}

impl Environment {
    /// Reads the current environment of this process.
    ///
    /// This reads variables, looks for `/.dockerenv` and, on Linux, reads two small files about the
    /// operating system. Call it only once, when a client is built. Values that cannot be read or
    /// are not UTF-8 count as absent.
    pub fn from_process() -> Self {
        let variables = VARIABLES.iter().filter_map(|name| {
            let value = set(&std::env::var(name).ok()?)?;
            Some(((*name).into(), value))
        });
        Self {
            variables: variables.collect(),
            docker: Path::new("/.dockerenv").exists(),
            os: OperatingSystem::of_process(),
        }
    }

    /// Sets a variable. An empty value removes it.
    #[must_use]
    pub fn with_variable(mut self, name: &str, value: &str) -> Self {
        match set(value) {
            Some(value) => self.variables.insert(name.into(), value),
            None => self.variables.remove(name),
        };
        self
    }

    /// Returns whether the client runs as a function of a FaaS provider.
    pub(crate) fn is_faas(&self) -> bool {
        self.faas_provider().is_some()
    }

    /// Returns the FaaS provider if the variables identify exactly one. If they identify Vercel,
    /// the variables of AWS Lambda are ignored, because Vercel is built on AWS Lambda (Handshake:
    /// "FaaS").
    pub(crate) fn faas_provider(&self) -> Option<FaasProvider> {
        let vercel = self.has("VERCEL");
        let lambda = self
            .variable("AWS_EXECUTION_ENV")
            .is_some_and(|value| value.starts_with("AWS_Lambda_"))
            || self.has("AWS_LAMBDA_RUNTIME_API");
        let gcp = self.has("K_SERVICE") || self.has("FUNCTION_NAME");
        let azure = self.has("FUNCTIONS_WORKER_RUNTIME");
        match [vercel, lambda && !vercel, azure, gcp] {
            [true, false, false, false] => Some(FaasProvider::Vercel),
            [false, true, false, false] => Some(FaasProvider::AwsLambda),
            [false, false, true, false] => Some(FaasProvider::AzureFunctions),
            [false, false, false, true] => Some(FaasProvider::GcpFunctions),
            _ => None,
        }
    }

    /// Returns the function's region, its memory in MB and its time limit in seconds. A number that
    /// cannot be parsed counts as absent, because invalid metadata must never cause an error.
    pub(super) fn function(&self) -> (Option<&str>, Option<i32>, Option<i32>) {
        let [region, memory, timeout] = match self.faas_provider() {
            Some(FaasProvider::AwsLambda) => ["AWS_REGION", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE", ""],
            Some(FaasProvider::GcpFunctions) => {
                ["FUNCTION_REGION", "FUNCTION_MEMORY_MB", "FUNCTION_TIMEOUT_SEC"]
            }
            Some(FaasProvider::Vercel) => ["VERCEL_REGION", "", ""],
            Some(FaasProvider::AzureFunctions) | None => [""; 3],
        };
        let number = |name| self.variable(name)?.parse().ok();
        (self.variable(region), number(memory), number(timeout))
    }

    fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(|value| &**value)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.variable(name).is_some()
    }
}

/// A provider of functions as a service (FaaS). The name of a variant is the value that clients
/// report in `client.env.name`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub(crate) enum FaasProvider {
    /// AWS Lambda.
    AwsLambda,
    /// Azure Functions.
    AzureFunctions,
    /// Google Cloud Functions and Cloud Run.
    GcpFunctions,
    /// Vercel.
    Vercel,
}

impl FaasProvider {
    /// Returns the name in the handshake.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::AwsLambda => "aws.lambda",
            Self::AzureFunctions => "azure.func",
            Self::GcpFunctions => "gcp.func",
            Self::Vercel => "vercel",
        }
    }
}

/// An operating system, as described in client metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OperatingSystem {
    pub(super) kind: Box<str>,
    /// The name of the distribution.
    pub(super) name: Option<Box<str>>,
    /// The machine's hardware name, such as `x86_64`.
    pub(super) architecture: Option<Box<str>>,
    pub(super) version: Option<Box<str>>,
}

impl OperatingSystem {
    /// The maximum length of a type, in bytes. Longer types are truncated.
    pub(crate) const MAX_TYPE_LENGTH: usize = 32;

    /// Creates an operating system of the type `kind`, such as `Linux`. An empty `kind` means that
    /// the type is unknown.
    pub(crate) fn new(kind: &str) -> Self {
        Self {
            kind: set(cut(kind, Self::MAX_TYPE_LENGTH)).unwrap_or_else(|| "unknown".into()),
            name: None,
            architecture: None,
            version: None,
        }
    }

    fn of_process() -> Self {
        let kind = match std::env::consts::OS {
            "linux" | "android" => "Linux",
            "macos" | "ios" => "Darwin",
            "windows" => "Windows",
            "freebsd" | "netbsd" | "openbsd" | "dragonfly" => "BSD",
            other => other,
        };
        let mut os = Self::new(kind);
        os.architecture = set(std::env::consts::ARCH);
        if kind == "Linux" {
            let read = |path| std::fs::read_to_string(path).unwrap_or_default();
            os.name = set(&pretty_name(&read("/etc/os-release")));
            os.version = set(read("/proc/sys/kernel/osrelease").trim());
        }
        os
    }
}

impl Default for OperatingSystem {
    /// Returns an unknown operating system.
    fn default() -> Self {
        Self::new("")
    }
}

/// Returns `PRETTY_NAME` of os-release(5), without its quotes.
pub(super) fn pretty_name(os_release: &str) -> String {
    os_release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))
        .map(|value| value.trim().trim_matches(['"', '\'']).to_owned())
        .unwrap_or_default()
}
