//! Client metadata: the `client` document in the first message of every connection (Handshake:
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
use sdam_core::document::DocumentWriter;

/// The separator of the names, versions and platforms of a driver and its wrapping libraries.
const DELIMITER: char = '|';

/// The name that errors use for the whole document.
const DOCUMENT: &str = "client document";

/// The content of the `client` document of handshakes, not yet shortened to its maximum length.
///
/// Changes apply to connections that are opened later; established connections are not affected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientMetadata {
    application: Option<Box<str>>,
    /// The driver first, then its wrapping libraries in the order in which they were appended.
    libraries: Vec<Library>,
    environment: Environment,
}

impl ClientMetadata {
    /// The maximum length of the encoded document, in bytes.
    pub const MAX_LENGTH: usize = 512;
    /// The maximum length of the application's name, in bytes.
    pub const MAX_APPLICATION_LENGTH: usize = 128;
    /// The maximum length of the driver's own name and version, in bytes; they are never truncated.
    pub const MAX_DRIVER_LENGTH: usize = 128;

    /// Creates the metadata of the driver `name` with this version in `environment`.
    ///
    /// # Errors
    ///
    /// The name or version is empty, too long, or contains a `|`.
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

    /// Sets the name of the application; an empty name counts as absent.
    ///
    /// # Errors
    ///
    /// `appName` is longer than 128 bytes.
    pub fn with_application(mut self, name: &str) -> Result<Self, InvalidMetadata> {
        check_length("appName", name, Self::MAX_APPLICATION_LENGTH)?;
        self.application = set(name);
        Ok(self)
    }

    /// Sets the details of the driver's platform, most important first: the end may be truncated.
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

    /// Appends a library that wraps the driver (Handshake: "Supporting wrapping libraries").
    /// Returns whether this changed anything: an equal library is not appended again.
    ///
    /// # Errors
    ///
    /// One of the library's texts contains a `|`; the metadata is then unchanged.
    pub fn append(&mut self, library: Library) -> Result<bool, InvalidMetadata> {
        library.validate()?;
        // The driver's own entry is skipped: a library equal to it is still appended.
        let known = self.libraries.iter().skip(1).any(|own| *own == library);
        if !known {
            self.libraries.push(library);
        }
        Ok(!known)
    }

    /// Returns whether the client runs as a function of a FaaS provider, so that
    /// `serverMonitoringMode=auto` means polling (Server Monitoring: "serverMonitoringMode").
    pub fn is_faas(&self) -> bool {
        self.environment.is_faas()
    }

    /// Checks a `client` document that was encoded by a driver.
    ///
    /// # Errors
    ///
    /// The document is longer than [`MAX_LENGTH`](Self::MAX_LENGTH), or is not BSON.
    pub fn check_encoded(document: &[u8]) -> Result<(), InvalidMetadata> {
        check_length(DOCUMENT, document, Self::MAX_LENGTH)?;
        match DocumentWriter::extending(document) {
            Ok(_) => Ok(()),
            Err(_) => Err(InvalidMetadata::new(DOCUMENT, Reason::Malformed)),
        }
    }

    /// Encodes the `client` document as BSON of at most [`MAX_LENGTH`](Self::MAX_LENGTH) bytes.
    ///
    /// Fields that do not fit are omitted in the order of the specification: those of the
    /// environment except the provider's name, those of the operating system except its type, the
    /// whole environment, the end of the platform. If that is not enough, the libraries appended
    /// last are omitted.
    pub fn encode(&self) -> Box<[u8]> {
        encode::encode(self)
    }
}

/// A library that wraps the driver (Handshake: "DriverInfoOptions"). Empty texts count as absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    name: Box<str>,
    version: Option<Box<str>>,
    platform: Option<Box<str>>,
}

impl Library {
    /// Creates a library with this name.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            version: None,
            platform: None,
        }
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

/// The error of metadata that a server would refuse, or that could not be split into its parts
/// again.
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
    Malformed,
    OfDriver,
}

impl InvalidMetadata {
    const fn new(option: &'static str, reason: Reason) -> Self {
        Self { option, reason }
    }

    /// Creates the error for appending a library to a `client` document that the driver encoded
    /// itself.
    pub const fn of_driver() -> Self {
        Self::new("driver name", Reason::OfDriver)
    }

    /// Returns the name of the invalid option, such as `appName`.
    pub const fn option(&self) -> &'static str {
        self.option
    }
}

impl fmt::Display for InvalidMetadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid {}: ", self.option)?;
        match self.reason {
            Reason::Empty => f.write_str("it must not be empty: set it or leave it out"),
            Reason::TooLong { length, limit } => {
                write!(
                    f,
                    "it has {length} bytes and may have at most {limit}: shorten it"
                )
            }
            Reason::Malformed => f.write_str("it is not a BSON document"),
            Reason::OfDriver => f.write_str(
                "the driver makes the client document itself: append the library to that",
            ),
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
    /// Writes the same text as `Display`, for programs that return the error from `main`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for InvalidMetadata {}

fn check_length(
    option: &'static str,
    text: impl AsRef<[u8]>,
    limit: usize,
) -> Result<(), InvalidMetadata> {
    let length = text.as_ref().len();
    if length > limit {
        return Err(InvalidMetadata::new(
            option,
            Reason::TooLong { length, limit },
        ));
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

/// Returns the text; an empty text counts as absent.
fn set(text: &str) -> Option<Box<str>> {
    (!text.is_empty()).then(|| text.into())
}
