//! The collector of one kind of telemetry.

use std::{path::PathBuf, time::Duration};

use hyper::{HeaderMap, Uri};

use super::{
    Signal, Variables,
    values::{headers, millis},
};

/// The default value of OTEL_EXPORTER_OTLP_TIMEOUT.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// The variable that specifies a file, and the path of the file.
pub(in super::super) type File = (String, PathBuf);

/// The collector for one kind of telemetry, and the settings of the requests to it (OpenTelemetry
/// Protocol Exporter: "Configuration Options").
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) struct Destination {
    pub(in super::super) endpoint: Uri,
    pub(in super::super) headers: HeaderMap,
    /// The time limit of a request.
    pub(in super::super) timeout: Duration,
    /// True if the messages are compressed with gzip.
    pub(in super::super) is_compressed: bool,
    /// The file with the certificate authorities, one of which must have signed the collector's
    /// certificate.
    pub(in super::super) authorities: Option<File>,
    /// The files with the certificate that the client shows if the collector requests one, and with
    /// its private key.
    pub(in super::super) client: Option<(File, File)>,
}

impl Destination {
    /// Reads the variables for `signal`. Each of them overrides the corresponding variable for all
    /// kinds of telemetry.
    pub(super) fn new(
        signal: Signal,
        endpoint: Uri,
        variables: &Variables,
    ) -> Result<Self, String> {
        let read = |word: &str| {
            let own = format!("OTEL_EXPORTER_OTLP_{}_{word}", signal.as_str().to_uppercase());
            let all = format!("OTEL_EXPORTER_OTLP_{word}");
            [own, all].into_iter().find_map(|name| {
                let value = variables.get(&name)?;
                Some((name, value.as_str()))
            })
        };
        if let Some((name, protocol)) = read("PROTOCOL").filter(|(_, it)| *it != "http/protobuf") {
            return Err(format!(
                "{name} is `{protocol}`, but sdam speaks http/protobuf only; set that, and the port \
                 to the collector's for HTTP, usually 4318"
            ));
        }
        let is_compressed = match read("COMPRESSION") {
            None | Some((_, "none")) => false,
            Some((_, "gzip")) => true,
            Some((name, other)) => {
                return Err(format!("{name} is `{other}`: it needs `gzip` or `none`"));
            }
        };
        let file = |word| read(word).map(|(name, path)| (name, PathBuf::from(path)));
        let client = match (file("CLIENT_CERTIFICATE"), file("CLIENT_KEY")) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some((name, _)), None) | (None, Some((name, _))) => {
                return Err(format!(
                    "{name}: it needs both OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and \
                     OTEL_EXPORTER_OTLP_CLIENT_KEY"
                ));
            }
        };
        let timeout = read("TIMEOUT").map(|(name, text)| millis(&name, text, TIMEOUT));
        let own_headers = read("HEADERS").map(|(name, text)| headers(&name, text));
        Ok(Self {
            endpoint,
            headers: own_headers.transpose()?.unwrap_or_default(),
            timeout: timeout.transpose()?.unwrap_or(TIMEOUT),
            is_compressed,
            authorities: file("CERTIFICATE"),
            client,
        })
    }

    pub(in super::super) fn has_tls(&self) -> bool {
        self.endpoint.scheme_str() == Some("https")
    }
}
