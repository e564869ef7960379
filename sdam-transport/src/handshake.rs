//! Client metadata: the `client` document in the first message of every connection (Handshake:
//! "Client metadata").
//!
//! ```
//! use sdam_core::hello::Handshake;
//! use sdam_transport::handshake::{ClientMetadata, DriverInfo, Environment};
//!
//! # fn main() -> Result<(), sdam_core::options::ConfigError> {
//! let environment = Environment::default().with_variable("VERCEL", "1");
//! let mut metadata = ClientMetadata::new("sdam", "0.1.0", &environment)?
//!     .with_platform("tokio")?
//!     .with_application("billing")?;
//! metadata.append(DriverInfo::new("wrapper").with_version("2.1"))?;
//! assert!(metadata.is_faas());
//!
//! let handshake = Handshake::new(metadata.encode());
//! # assert!(handshake.client.len() <= ClientMetadata::MAX_LENGTH);
//! # Ok(())
//! # }
//! ```

mod environment;
#[cfg(test)]
mod tests;

pub use environment::Environment;
pub(crate) use environment::FaasProvider;
use sdam_core::{document::DocumentWriter, options::ConfigError};

/// The separator between the driver's name and the names of its wrapping libraries. It also
/// separates their versions and platforms.
const DELIMITER: &str = "|";

/// The name that errors use for the whole document.
const DOCUMENT: &str = "client document";

/// The content of the `client` document that handshakes send, before the document is shortened to
/// its maximum length.
///
/// Changes apply only to connections that are opened afterwards, not to established ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientMetadata {
    application: Option<Box<str>>,
    /// The driver, followed by its wrapping libraries in the order in which they were appended.
    libraries: Vec<DriverInfo>,
    environment: Environment,
}

impl ClientMetadata {
    /// The maximum length of the encoded document, in bytes.
    pub const MAX_LENGTH: usize = 512;
    /// The maximum length of the application's name, in bytes.
    pub(crate) const MAX_APPLICATION_LENGTH: usize = 128;
    /// The maximum length of the driver's own name and version, in bytes. They are never truncated.
    pub(crate) const MAX_DRIVER_LENGTH: usize = 128;

    /// Creates the metadata of the driver `name` in version `version`, which runs in `environment`.
    ///
    /// # Errors
    ///
    /// If the name or the version is empty, is too long, or contains a `|`.
    pub fn new(name: &str, version: &str, environment: &Environment) -> Result<Self, ConfigError> {
        for (option, text) in [("driver name", name), ("driver version", version)] {
            if text.is_empty() {
                let remedy = "set it or leave it out";
                return Err(ConfigError::new(option, "", "it must not be empty", remedy));
            }
            check_length(option, text, Self::MAX_DRIVER_LENGTH)?;
        }
        let driver = DriverInfo::new(name).with_version(version);
        driver.validate()?;
        Ok(Self { application: None, libraries: vec![driver], environment: environment.clone() })
    }

    /// Sets the name of the application. An empty name means that there is none.
    ///
    /// # Errors
    ///
    /// If `name` is longer than 128 bytes.
    pub fn with_application(mut self, name: &str) -> Result<Self, ConfigError> {
        check_length("appName", name, Self::MAX_APPLICATION_LENGTH)?;
        self.application = set(name);
        Ok(self)
    }

    /// Sets the details of the driver's platform, most important first, because the end may be
    /// truncated.
    ///
    /// # Errors
    ///
    /// If `platform` contains a `|`.
    pub fn with_platform(mut self, platform: &str) -> Result<Self, ConfigError> {
        if let Some(driver) = self.libraries.first_mut() {
            let changed = driver.clone().with_platform(platform);
            changed.validate()?;
            *driver = changed;
        }
        Ok(self)
    }

    /// Appends a library that wraps the driver, unless an equal library has been appended before
    /// (Handshake: "Supporting wrapping libraries"). Returns whether the library was appended.
    ///
    /// # Errors
    ///
    /// If a string of the library contains a `|`. The metadata is then unchanged.
    pub fn append(&mut self, library: DriverInfo) -> Result<bool, ConfigError> {
        library.validate()?;
        // The first entry is the driver itself. A library that is equal to it is still appended.
        let known = self.libraries.iter().skip(1).any(|own| *own == library);
        if !known {
            self.libraries.push(library);
        }
        Ok(!known)
    }

    /// Returns whether the client runs as a function of a FaaS provider. If it does,
    /// `serverMonitoringMode=auto` means polling (Server Monitoring: "serverMonitoringMode").
    pub fn is_faas(&self) -> bool {
        self.environment.is_faas()
    }

    /// Checks a `client` document that was encoded by a driver.
    ///
    /// # Errors
    ///
    /// If the document is longer than [`MAX_LENGTH`](Self::MAX_LENGTH), or is not BSON.
    pub fn check_encoded(document: &[u8]) -> Result<(), ConfigError> {
        check_length(DOCUMENT, document, Self::MAX_LENGTH)?;
        let (reason, remedy) = ("it is not a BSON document", "correct its encoding");
        let checked = DocumentWriter::extending(document).map(drop);
        checked.map_err(|_| ConfigError::new(DOCUMENT, "", reason, remedy))
    }

    /// Encodes the `client` document as BSON of at most [`MAX_LENGTH`](Self::MAX_LENGTH) bytes.
    ///
    /// Fields that do not fit are omitted in the order that the specification prescribes: first
    /// those of the environment except the provider's name, then those of the operating system
    /// except its type, then the whole environment, and then the end of the platform. If that is
    /// not enough, the libraries appended last are omitted.
    pub fn encode(&self) -> Box<[u8]> {
        let mut plan = Plan {
            environment: Detail::Full,
            os: Detail::Full,
            platform: join(self.libraries.iter().filter_map(|own| own.platform.as_deref())),
            libraries: self.libraries.len(),
        };
        let mut document = plan.write(self);
        // The order is that of Handshake: "Limitations".
        let steps: [fn(&mut Plan); 3] = [
            |plan| plan.environment = Detail::Essential,
            |plan| plan.os = Detail::Essential,
            |plan| plan.environment = Detail::None,
        ];
        for step in steps {
            if document.len() <= Self::MAX_LENGTH {
                break;
            }
            step(&mut plan);
            document = plan.write(self);
        }
        while document.len() > Self::MAX_LENGTH {
            if plan.platform.is_empty() {
                if plan.libraries <= 1 {
                    // This is unreachable: the driver's own strings are so short that they always
                    // fit.
                    break;
                }
                plan.libraries -= 1;
            } else {
                let excess = document.len() - Self::MAX_LENGTH;
                let kept = plan.platform.len().saturating_sub(excess);
                plan.platform = cut(&plan.platform, kept).to_owned();
            }
            document = plan.write(self);
        }
        document.into()
    }
}

/// A library that wraps the driver (Handshake: "DriverInfoOptions"). Empty strings count as absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverInfo {
    name: Box<str>,
    version: Option<Box<str>>,
    platform: Option<Box<str>>,
}

impl DriverInfo {
    /// Creates a library called `name`.
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), version: None, platform: None }
    }

    /// Sets the library's version.
    #[must_use]
    pub fn with_version(mut self, version: &str) -> Self {
        self.version = set(version);
        self
    }

    /// Sets the details of the library's platform.
    #[must_use]
    pub fn with_platform(mut self, platform: &str) -> Self {
        self.platform = set(platform);
        self
    }

    fn validate(&self) -> Result<(), ConfigError> {
        let fields = [
            ("driver name", Some(&self.name)),
            ("driver version", self.version.as_ref()),
            ("platform", self.platform.as_ref()),
        ];
        for (option, text) in fields {
            if text.is_some_and(|text| text.contains(DELIMITER)) {
                let reason = format!("it must not contain `{DELIMITER}`");
                let value = text.cloned().unwrap_or_default();
                return Err(ConfigError::new(option, value, reason, "use another character"));
            }
        }
        Ok(())
    }
}

/// The parts of the metadata that are written.
struct Plan {
    environment: Detail,
    os: Detail,
    /// The platform; empty if omitted.
    platform: String,
    /// The number of libraries, including the driver.
    libraries: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Detail {
    None,
    /// Only the provider's name, or the operating system's type.
    Essential,
    Full,
}

impl Plan {
    fn write(&self, metadata: &ClientMetadata) -> Vec<u8> {
        let mut client = DocumentWriter::new();
        if let Some(application) = &metadata.application {
            client.document("application", |document| {
                document.text("name", &**application);
            });
        }
        let libraries = metadata.libraries.iter().take(self.libraries);
        client.document("driver", |document| {
            let names = join(libraries.clone().map(|own| &*own.name));
            document.text("name", names.as_str());
            // Metadata update prose test 1: a library without a version leaves the field unchanged.
            let versions = libraries.filter_map(|own| own.version.as_deref());
            document.text("version", join(versions).as_str());
        });
        let os = &metadata.environment.os;
        client.document("os", |document| {
            document.text("type", &*os.kind);
            if self.os == Detail::Full {
                document.text("name", os.name.as_deref());
                document.text("architecture", os.architecture.as_deref());
                document.text("version", os.version.as_deref());
            }
        });
        if !self.platform.is_empty() {
            client.text("platform", self.platform.as_str());
        }
        let environment = &metadata.environment;
        client.document_unless_empty("env", |document| {
            if self.environment >= Detail::Essential {
                let provider = environment.faas_provider();
                document.text("name", provider.map(FaasProvider::as_str));
            }
            if self.environment == Detail::Full {
                let (region, memory_mb, timeout_sec) = environment.function();
                document.int32("timeout_sec", timeout_sec);
                document.int32("memory_mb", memory_mb);
                document.text("region", region);
                document.document_unless_empty("container", |container| {
                    container.text("runtime", environment.docker.then_some("docker"));
                    let orchestrated = environment.has("KUBERNETES_SERVICE_HOST");
                    container.text("orchestrator", orchestrated.then_some("kubernetes"));
                });
            }
        });
        client.finish()
    }
}

fn join<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    texts.collect::<Vec<_>>().join(DELIMITER)
}

fn check_length(option: &str, text: impl AsRef<[u8]>, limit: usize) -> Result<(), ConfigError> {
    let length = text.as_ref().len();
    if length > limit {
        let reason = format!("it has {length} bytes and may have at most {limit}");
        return Err(ConfigError::new(option, "", reason, "shorten it"));
    }
    Ok(())
}

/// Truncates `text` to at most `limit` bytes.
fn cut(text: &str, limit: usize) -> &str {
    let mut end = limit.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

/// Returns the string, or `None` if it is empty.
fn set(text: &str) -> Option<Box<str>> {
    (!text.is_empty()).then(|| text.into())
}
