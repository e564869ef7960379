//! What a client tells servers about itself in the first message of every connection (Handshake:
//! "Client metadata").
//!
//! ```
//! use sdam_core::hello::Handshake;
//! use sdam_transport::handshake::{ClientMetadata, Environment, Library};
//!
//! # fn main() -> Result<(), sdam_transport::handshake::InvalidMetadata> {
//! let environment = Environment::default().with_variable("VERCEL", "1");
//! let mut metadata = ClientMetadata::new("sdam", "0.1.0", &environment)?
//!     .with_platform("tokio")?
//!     .with_application("billing")?;
//! metadata.append(Library::new("wrapper").with_version("2.1"))?;
//! assert!(metadata.is_faas());
//!
//! let handshake = Handshake::new(metadata.encode());
//! # assert!(handshake.client.len() <= ClientMetadata::MAX_LENGTH);
//! # Ok(())
//! # }
//! ```

mod encode;
mod environment;
#[cfg(test)]
mod tests;

use std::fmt;

pub use environment::{Environment, FaasProvider, OperatingSystem};

/// What separates the names, versions and platforms of a driver and the libraries around it.
const DELIMITER: char = '|';

/// The `client` document of handshakes, not yet shortened to its greatest length.
///
/// Later changes reach connections that are opened later; established ones have said what they
/// said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientMetadata {
    application: Option<Box<str>>,
    /// The driver first, then the libraries around it in the order in which they came.
    libraries: Vec<Library>,
    environment: Environment,
}

impl ClientMetadata {
    /// The greatest length of the encoded document, in bytes.
    pub const MAX_LENGTH: usize = 512;
    /// The greatest length of the application's name, in bytes.
    pub const MAX_APPLICATION_LENGTH: usize = 128;
    /// The greatest lengths of the driver's own name and version, in bytes; they are never cut.
    pub const MAX_DRIVER_LENGTH: usize = 128;

    /// The metadata of the driver `name` of this version in `environment`.
    ///
    /// # Errors
    ///
    /// The name or version is empty, too long or contains a `|`.
    pub fn new(
        name: &str,
        version: &str,
        environment: &Environment,
    ) -> Result<Self, InvalidMetadata> {
        for (option, text) in [("driver name", name), ("driver version", version)] {
            if text.is_empty() {
                return Err(InvalidMetadata::new(option, Reason::Empty));
            }
            check_length(option, text, Self::MAX_DRIVER_LENGTH)?;
        }
        let driver = Library::new(name).with_version(version);
        driver.validate()?;
        Ok(Self {
            application: None,
            libraries: vec![driver],
            environment: environment.clone(),
        })
    }

    /// The same metadata with the name of the application; an empty one counts as none.
    ///
    /// # Errors
    ///
    /// `appName` is longer than 128 bytes.
    pub fn with_application(mut self, name: &str) -> Result<Self, InvalidMetadata> {
        check_length("appName", name, Self::MAX_APPLICATION_LENGTH)?;
        self.application = set(name);
        Ok(self)
    }

    /// The same metadata with details of the driver's platform, the most important ones first,
    /// since the end is what may be cut off.
    ///
    /// # Errors
    ///
    /// The text contains a `|`.
    pub fn with_platform(mut self, platform: &str) -> Result<Self, InvalidMetadata> {
        if let Some(driver) = self.libraries.first_mut() {
            let changed = driver.clone().with_platform(platform);
            changed.validate()?;
            *driver = changed;
        }
        Ok(self)
    }

    /// Appends a library around the driver (Handshake: "Supporting wrapping libraries"), and tells
    /// whether that changed anything: one that has been appended before is not appended again.
    ///
    /// # Errors
    ///
    /// One of the library's texts contains a `|`; then nothing is changed.
    pub fn append(&mut self, library: Library) -> Result<bool, InvalidMetadata> {
        library.validate()?;
        // A library that happens to look like the driver is one all the same.
        let known = self.libraries.iter().skip(1).any(|own| *own == library);
        if !known {
            self.libraries.push(library);
        }
        Ok(!known)
    }

    /// Whether the client runs as a function of a FaaS provider, where `serverMonitoringMode=auto`
    /// means polling (Server Monitoring: "serverMonitoringMode").
    pub fn is_faas(&self) -> bool {
        self.environment.is_faas()
    }

    /// The `client` document, BSON, of at most [`MAX_LENGTH`](Self::MAX_LENGTH) bytes.
    ///
    /// What does not fit is left out in the order of the specification: what is known of the
    /// environment except the name of the provider, what is known of the operating system except
    /// its type, the whole environment, the end of the platform. If that is still not enough, the
    /// libraries appended last are left out.
    pub fn encode(&self) -> Box<[u8]> {
        encode::encode(self)
    }
}

/// A library around the driver (Handshake: "DriverInfoOptions"). Empty texts count as absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    name: Box<str>,
    version: Option<Box<str>>,
    platform: Option<Box<str>>,
}

impl Library {
    /// The library of that name.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            version: None,
            platform: None,
        }
    }

    /// The same library with its version.
    #[must_use]
    pub fn with_version(mut self, version: &str) -> Self {
        self.version = set(version);
        self
    }

    /// The same library with details of its platform.
    #[must_use]
    pub fn with_platform(mut self, platform: &str) -> Self {
        self.platform = set(platform);
        self
    }

    fn validate(&self) -> Result<(), InvalidMetadata> {
        let fields = [
            ("driver name", Some(&self.name)),
            ("driver version", self.version.as_ref()),
            ("platform", self.platform.as_ref()),
        ];
        for (option, text) in fields {
            if text.is_some_and(|text| text.contains(DELIMITER)) {
                return Err(InvalidMetadata::new(option, Reason::Delimiter));
            }
        }
        Ok(())
    }
}

/// Metadata that a server would refuse or that could not be told apart again.
#[derive(Clone, PartialEq, Eq)]
pub struct InvalidMetadata {
    option: &'static str,
    reason: Reason,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Reason {
    Empty,
    TooLong { length: usize, limit: usize },
    Delimiter,
}

impl InvalidMetadata {
    const fn new(option: &'static str, reason: Reason) -> Self {
        Self { option, reason }
    }

    /// The option that is wrong, such as `appName`.
    pub const fn option(&self) -> &'static str {
        self.option
    }
}

impl fmt::Display for InvalidMetadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid {}: ", self.option)?;
        match self.reason {
            Reason::Empty => f.write_str("it must not be empty: name it or leave it out"),
            Reason::TooLong { length, limit } => {
                write!(
                    f,
                    "it has {length} bytes and may have at most {limit}: shorten it"
                )
            }
            Reason::Delimiter => {
                write!(
                    f,
                    "it must not contain `{DELIMITER}`: use another character"
                )
            }
        }
    }
}

impl fmt::Debug for InvalidMetadata {
    /// The text, as a program prints it that returns the error from `main`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for InvalidMetadata {}

fn check_length(option: &'static str, text: &str, limit: usize) -> Result<(), InvalidMetadata> {
    let length = text.len();
    if length > limit {
        return Err(InvalidMetadata::new(
            option,
            Reason::TooLong { length, limit },
        ));
    }
    Ok(())
}

/// The beginning of `text`, at most `limit` bytes long.
fn cut(text: &str, limit: usize) -> &str {
    let mut end = limit.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

/// An empty text counts as absent.
fn set(text: &str) -> Option<Box<str>> {
    (!text.is_empty()).then(|| text.into())
}
