//! The syntax of option values.

use alloc::{
    boxed::Box,
    format,
    string::{String, ToString},
    vec::Vec,
};
use core::{ops::RangeInclusive, time::Duration};

use super::value::{Properties, Secret, Value};

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
