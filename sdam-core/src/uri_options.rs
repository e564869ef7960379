//! The options of connection strings: the table of all options (URI Options: "Connection options
//! for a `MongoClient`"), and the syntax of their values.

use alloc::{
    boxed::Box,
    collections::BTreeMap,
    format,
    string::{String, ToString},
    vec::Vec,
};
use core::{fmt, ops::RangeInclusive, time::Duration};

use zeroize::Zeroizing;

use self::Kind::{Choice, Flag, List, Millis, Number, Service, Text, WriteConcern};
use crate::{read_preference::TagSet, text::Joined};

/// Option values by option name.
pub(crate) type Settings = BTreeMap<&'static str, Value>;

/// The value of an option in a connection string.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Value {
    /// `true` or `false`.
    Flag(bool),
    /// An integer.
    Number(i64),
    /// A duration, given in milliseconds.
    Duration(Duration),
    /// A string. If only certain strings are allowed, the string has the specification's spelling.
    Text(Box<str>),
    /// A string that is redacted in errors and warnings.
    Secret(Secret),
    /// A list of strings, in the given order.
    List(Box<[Box<str>]>),
    /// Names with one value each.
    Properties(Properties),
    /// Tag sets, in the given order.
    TagSets(Vec<TagSet>),
}

impl fmt::Display for Value {
    /// Formats the value as in a connection string. [Secrets](Secret) and the values of
    /// [properties](Properties) are hidden; tag sets are in braces.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(on) => on.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Duration(time) => time.as_millis().fmt(f),
            Self::Text(text) => text.fmt(f),
            Self::Secret(_) | Self::Properties(_) => f.write_str(HIDDEN),
            Self::List(items) => Joined(items, ",").fmt(f),
            Self::TagSets(sets) => Joined(sets, ", ").fmt(f),
        }
    }
}

/// A secret string: its `Debug` output does not reveal it, and its memory is wiped when it is
/// dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<Box<str>>);

impl Secret {
    /// Creates a secret from `text`.
    pub fn new(text: &str) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    /// Returns the string itself, for authentication.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

/// The properties of an authentication mechanism: unique names with one value each.
///
/// Names are case-insensitive (Authentication: "Naming"). A value that contains a comma cannot be
/// part of a connection string, where the comma would end it: set it in code, with
/// [`Properties::new`].
///
/// A value can be a session token, so `Debug` prints only the names.
#[derive(Clone, PartialEq, Eq)]
pub struct Properties(BTreeMap<Box<str>, Box<str>>);

impl Properties {
    /// Creates the properties; if a name is repeated, its last value is used.
    pub fn new<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let pairs = pairs.into_iter();
        Self(pairs.map(|(name, value)| (normal(name), value.into())).collect())
    }

    /// Returns the value of the property `name`, ignoring case.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.0.get(&normal(name)).map(|value| &**value)
    }

    /// Iterates over names and values, sorted by name. The names are in the specification's
    /// upper-case spelling.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }
}

/// Returns the normalized spelling of a property's name, under which the property is stored.
fn normal(name: &str) -> Box<str> {
    name.to_ascii_uppercase().into()
}

impl fmt::Debug for Properties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hidden = self.iter().map(|(name, _)| (name, Secret::new("")));
        f.debug_map().entries(hidden).finish()
    }
}

/// The placeholder in messages for a value that is, or may contain, a secret.
pub(crate) const HIDDEN: &str = "<hidden>";

/// Returns the time limit set by a connection string; zero means no limit.
pub(crate) fn limit(time: Duration) -> Option<Duration> {
    (!time.is_zero()).then_some(time)
}

/// Returns the value of an option as a `T`.
pub(crate) fn typed<'s, T: Typed<'s>>(settings: &'s Settings, name: &str) -> Option<T> {
    settings.get(name).and_then(T::of)
}

/// A type to which the values of some options can be converted.
pub(crate) trait Typed<'a>: Sized {
    fn of(value: &'a Value) -> Option<Self>;
}

macro_rules! types {
    ($($type:ty: $pattern:pat => $value:expr;)*) => {
        $(
            impl<'a> Typed<'a> for $type {
                fn of(value: &'a Value) -> Option<Self> {
                    match value {
                        $pattern => $value,
                        _ => None,
                    }
                }
            }
        )*
    };
}

types! {
    bool: Value::Flag(on) => Some(*on);
    u16: Value::Number(number) => (*number).try_into().ok();
    u32: Value::Number(number) => (*number).try_into().ok();
    i32: Value::Number(number) => (*number).try_into().ok();
    Duration: Value::Duration(time) => limit(*time);
    &'a str: Value::Text(text) => Some(text);
    &'a Secret: Value::Secret(secret) => Some(secret);
    &'a Properties: Value::Properties(properties) => Some(properties);
}

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
    row("readPreferenceTags", Kind::TagSet).repeated(Repetition::List),
    row("replicaSet", Text),
    row("serverMonitoringMode", Choice(&["auto", "stream", "poll"])),
    row("serverSelectionTimeoutMS", MILLIS),
    row("serverSelectionTryOnce", Flag),
    row("socketCheckIntervalMS", MILLIS),
    row("srvMaxHosts", COUNT).srv_only(),
    row("srvServiceName", Service).srv_only(),
    row("authMechanism", Text),
    row("authMechanismProperties", Kind::Properties),
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
    row("proxyPassword", Kind::Secret).guard().repeated(Repetition::Error),
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
    row("tlsCertificateKeyFilePassword", Kind::Secret).guard(),
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
/// prefix, such as `sslVerifyCertificate`, is treated as protecting connections, too.
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

/// The kind of an option's values.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// `true` or `false`.
    Flag,
    /// An integer within these bounds.
    Number(RangeInclusive<i64>),
    /// A number of milliseconds, at least this minimum.
    Millis(i64),
    /// Any non-empty string.
    Text,
    /// Like `Text`, but redacted in messages.
    Secret,
    /// One of these strings, ignoring case.
    Choice(&'static [&'static str]),
    /// Some of these strings, ignoring case, separated by commas.
    List(&'static [&'static str]),
    /// `name:value,name:value`, redacted in messages.
    Properties,
    /// `name:value,name:value`, possibly empty.
    TagSet,
    /// A number of servers, or the name of a write concern.
    WriteConcern,
    /// The name of a service, as a label of a domain name.
    Service,
}

/// The error for an invalid value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) reason: String,
    /// The value without its invalid parts, if the rest is still usable.
    pub(crate) rest: Option<Value>,
}

impl<S: ToString> From<S> for Refusal {
    fn from(reason: S) -> Self {
        Self { reason: reason.to_string(), rest: None }
    }
}

impl Kind {
    /// Returns whether values of this kind are redacted in errors and warnings.
    pub(crate) fn is_secret(&self) -> bool {
        matches!(self, Self::Secret | Self::Properties)
    }

    /// Parses `text`, which is already percent-decoded.
    pub(crate) fn parse(&self, text: &str) -> Result<Value, Refusal> {
        if text.is_empty() && !matches!(self, Self::TagSet) {
            return Err("it has no value".into());
        }
        Ok(match self {
            Self::Flag => Value::Flag(flag(text)?),
            Self::Number(range) => Value::Number(number(text, range)?),
            Self::Millis(min) => {
                let millis = number(text, &(*min..=i64::MAX))?;
                Value::Duration(Duration::from_millis(millis.unsigned_abs()))
            }
            Self::Secret => Value::Secret(Secret::new(text)),
            Self::Choice(choices) => match spelling(choices, text) {
                Some(choice) => Value::Text(choice.into()),
                None => return Err(format!("it must be one of {}", choices.join(", ")).into()),
            },
            Self::List(known) => list(text, known)?,
            Self::Properties => {
                let pairs = pairs(text, |value| !value.is_empty())?;
                Value::Properties(Properties::new(pairs))
            }
            Self::TagSet => {
                let pairs = pairs(text, |_| true)?;
                Value::TagSets([pairs.into_iter().collect()].into())
            }
            Self::WriteConcern if looks_numeric(text) => {
                Value::Number(number(text, &(0..=i64::from(i32::MAX)))?)
            }
            Self::WriteConcern | Self::Text => Value::Text(text.into()),
            Self::Service => Value::Text(service(text)?.into()),
        })
    }
}

fn flag(text: &str) -> Result<bool, &'static str> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("it must be `true` or `false`"),
    }
}

fn number(text: &str, range: &RangeInclusive<i64>) -> Result<i64, String> {
    Some(text)
        .filter(|text| looks_numeric(text))
        .and_then(|text| text.parse().ok())
        .filter(|number| range.contains(number))
        .ok_or_else(|| match (range.start(), range.end()) {
            (min, &i64::MAX) => format!("it must be a whole number, at least {min}"),
            (min, max) => format!("it must be a whole number from {min} to {max}"),
        })
}

fn looks_numeric(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the specification's spelling of `text` if it is one of `known`.
fn spelling(known: &[&'static str], text: &str) -> Option<&'static str> {
    let mut known = known.iter().copied();
    known.find(|known| known.eq_ignore_ascii_case(text))
}

fn list(text: &str, known: &[&'static str]) -> Result<Value, Refusal> {
    let found: Box<[Box<str>]> =
        text.split(',').filter_map(|item| spelling(known, item).map(Into::into)).collect();
    let complete = found.len() == text.split(',').count();
    let rest = (!found.is_empty()).then_some(Value::List(found));
    match rest {
        Some(value) if complete => Ok(value),
        rest => Err(Refusal { reason: format!("only {} are known", known.join(", ")), rest }),
    }
}

/// Parses the pairs of `name:value,name:value`, in the given order.
///
/// Only the first colon of a pair is a separator, so a value may contain colons (Connection String:
/// "Key-Value Pair").
fn pairs(text: &str, is_value: impl Fn(&str) -> bool) -> Result<Vec<(&str, &str)>, &'static str> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    text.split(',')
        .map(|pair| pair.split_once(':'))
        .map(|pair| pair.filter(|(name, value)| !name.is_empty() && is_value(value)))
        .collect::<Option<_>>()
        .ok_or("it must have the form `name:value,name:value`")
}

/// Checks that `text` is a valid service name (RFC 6335, but up to 62 characters, so that it fits a
/// domain label with an underscore).
fn service(text: &str) -> Result<&str, &'static str> {
    let words: Vec<&str> = text.split('-').collect();
    let is_word =
        |word: &&str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let is_name = text.len() <= 62
        && words.iter().all(is_word)
        && text.bytes().any(|byte| byte.is_ascii_alphabetic());
    is_name.then_some(text).ok_or(
        "it must be the name of a service: letters, digits and single hyphens, at most 62 of them",
    )
}

#[cfg(test)]
mod tests {
    use zeroize::ZeroizeOnDrop;

    use super::*;

    #[test]
    fn a_secret_is_hidden_and_wiped() {
        let is_wiped = |_: &dyn ZeroizeOnDrop| {};
        let secret = Secret::new("pencil");
        is_wiped(&secret.0);
        assert_eq!(format!("{secret:?}"), HIDDEN);
    }
}
