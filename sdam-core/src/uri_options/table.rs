//! The table of all options of connection strings (URI Options: "Connection options for a
//! `MongoClient`").

use super::kind::Kind::{
    self, Choice, Flag, List, Millis, Number, Properties, Secret, Service, TagSet, Text,
    WriteConcern,
};

/// The parser's description of an option.
pub(crate) struct Row {
    /// The name in the specification's spelling.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// The effect of giving the option more than once.
    pub(crate) repetition: Repetition,
    /// True if the option is allowed only in SRV strings.
    pub(crate) srv_only: bool,
    /// True if the option protects the confidentiality or the route of data. Ignoring such an
    /// option would leave connections unprotected, so no topology starts if its value is invalid.
    pub(crate) guards: bool,
}

/// The effect of giving an option more than once.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repetition {
    /// The last value is used, and there is a warning.
    Warning,
    /// Repetition is an error.
    Error,
    /// Repetition is an error if the values differ.
    ErrorUnlessEqual,
    /// The values form a list.
    List,
}

/// An alternative name of an option.
pub(crate) struct Alias {
    pub(crate) other_name: &'static str,
    pub(crate) name: &'static str,
    pub(crate) deprecated: bool,
}

const I32_MAX: i64 = 0x7FFF_FFFF;
const COUNT: Kind = Number(0..=I32_MAX);
const MILLIS: Kind = Millis(0);
const MODES: &[&str] =
    &["primary", "primaryPreferred", "secondary", "secondaryPreferred", "nearest"];

const ROWS: &[Row] = &[
    row("appname", Text),
    row("connectTimeoutMS", MILLIS),
    row("directConnection", Flag),
    row("heartbeatFrequencyMS", Millis(500)),
    row("loadBalanced", Flag),
    row("localThresholdMS", MILLIS),
    row("maxStalenessSeconds", Number(-1..=I32_MAX)),
    row("readPreference", Choice(MODES)),
    row("readPreferenceTags", TagSet).repeated(Repetition::List),
    row("replicaSet", Text),
    row("serverMonitoringMode", Choice(&["auto", "stream", "poll"])),
    row("serverSelectionTimeoutMS", MILLIS),
    row("serverSelectionTryOnce", Flag),
    row("socketCheckIntervalMS", MILLIS),
    row("srvMaxHosts", COUNT).srv_only(),
    row("srvServiceName", Service).srv_only(),
    row("authMechanism", Text),
    row("authMechanismProperties", Properties),
    row("authSource", Text),
    row("compressors", List(&["snappy", "zlib", "zstd"])),
    row("enableOverloadRetargeting", Flag),
    row("journal", Flag),
    row("maxAdaptiveRetries", COUNT),
    row("maxConnecting", Number(1..=I32_MAX)),
    row("maxIdleTimeMS", MILLIS),
    row("maxPoolSize", COUNT),
    row("minPoolSize", COUNT),
    row("proxyHost", Text).guard().repeated(Repetition::Error),
    row("proxyPassword", Secret).guard().repeated(Repetition::Error),
    row("proxyPort", Number(1..=65535)).guard().repeated(Repetition::Error),
    row("proxyUsername", Text).guard().repeated(Repetition::Error),
    row("readConcernLevel", Text),
    row("retryReads", Flag),
    row("retryWrites", Flag),
    row("socketTimeoutMS", MILLIS),
    row("timeoutMS", MILLIS),
    row("tls", Flag).guard(),
    row("tlsAllowInvalidCertificates", Flag).guard(),
    row("tlsAllowInvalidHostnames", Flag).guard(),
    row("tlsCAFile", Text).guard(),
    row("tlsCertificateKeyFile", Text).guard(),
    row("tlsCertificateKeyFilePassword", Secret).guard(),
    row("tlsDisableCertificateRevocationCheck", Flag).guard(),
    row("tlsDisableOCSPEndpointCheck", Flag).guard(),
    row("tlsInsecure", Flag).guard(),
    row("w", WriteConcern),
    row("waitQueueTimeoutMS", MILLIS),
    row("wTimeoutMS", MILLIS),
    row("zlibCompressionLevel", Number(-1..=9)),
];

const ALIASES: &[Alias] = &[
    alias("ssl", "tls", false),
    alias("j", "journal", true),
    alias("secondaryAcceptableLatencyMS", "localThresholdMS", true),
    alias("wtimeout", "wTimeoutMS", true),
];

/// The name prefixes of options that protect connections. An unknown option whose name has such a
/// prefix, such as `sslVerifyCertificate`, is treated as protecting them, too.
const GUARDING: [&str; 3] = ["proxy", "ssl", "tls"];

/// Pairs of options that exclude each other, whatever their values are (URI Options: "tlsInsecure"
/// and the options about revocation).
pub(crate) const EXCLUSIVE: &[(&str, &str)] = &[
    ("tlsInsecure", "tlsAllowInvalidCertificates"),
    ("tlsInsecure", "tlsAllowInvalidHostnames"),
    ("tlsInsecure", "tlsDisableCertificateRevocationCheck"),
    ("tlsInsecure", "tlsDisableOCSPEndpointCheck"),
    ("tlsAllowInvalidCertificates", "tlsDisableCertificateRevocationCheck"),
    ("tlsAllowInvalidCertificates", "tlsDisableOCSPEndpointCheck"),
    ("tlsDisableCertificateRevocationCheck", "tlsDisableOCSPEndpointCheck"),
];

/// Options that require another option (SOCKS5 Support: "URI options").
pub(crate) const REQUIRES: &[(&str, &str)] = &[
    ("proxyPort", "proxyHost"),
    ("proxyUsername", "proxyHost"),
    ("proxyPassword", "proxyHost"),
    ("proxyUsername", "proxyPassword"),
    ("proxyPassword", "proxyUsername"),
];

/// Returns the row of the option that `key` names, ignoring case, and the alias if `key` is one.
pub(crate) fn find(key: &str) -> Option<(&'static Row, Option<&'static Alias>)> {
    let mut aliases = ALIASES.iter();
    let alias = aliases.find(|alias| alias.other_name.eq_ignore_ascii_case(key));
    let name = alias.map_or(key, |alias| alias.name);
    let mut rows = ROWS.iter();
    let row = rows.find(|row| row.name.eq_ignore_ascii_case(name))?;
    Some((row, alias))
}

/// Returns whether the name `key` of an unknown option suggests that it protects connections.
pub(crate) fn guards_by_name(key: &str) -> bool {
    let starts_with = |prefix: &str| {
        let start = key.as_bytes().get(..prefix.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
    };
    GUARDING.into_iter().any(starts_with)
}

pub(crate) fn rows() -> &'static [Row] {
    ROWS
}

const fn row(name: &'static str, kind: Kind) -> Row {
    Row { name, kind, repetition: Repetition::Warning, srv_only: false, guards: false }
}

impl Row {
    const fn repeated(mut self, repetition: Repetition) -> Self {
        self.repetition = repetition;
        self
    }

    /// Marks the option as one that protects connections. Giving it two different values is an
    /// error.
    const fn guard(mut self) -> Self {
        self.guards = true;
        self.repeated(Repetition::ErrorUnlessEqual)
    }

    const fn srv_only(mut self) -> Self {
        self.srv_only = true;
        self
    }
}

const fn alias(other_name: &'static str, name: &'static str, deprecated: bool) -> Alias {
    Alias { other_name, name, deprecated }
}
