//! The values of options.

use alloc::{boxed::Box, collections::BTreeMap, vec::Vec};
use core::{fmt, time::Duration};

use zeroize::Zeroizing;

use super::Settings;
use crate::{joined::Joined, read_preference::TagSet};

/// The placeholder in messages for a value that is, or may contain, a secret.
pub(crate) const HIDDEN: &str = "<hidden>";

/// Returns the time limit set by a connection string; zero means no limit.
pub(crate) fn limit(time: Duration) -> Option<Duration> {
    (!time.is_zero()).then_some(time)
}

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
    /// A string. If only certain strings are allowed, it is in the specification's spelling.
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

/// Returns the normalized spelling of a property's name, by which the property is stored.
fn normal(name: &str) -> Box<str> {
    name.to_ascii_uppercase().into()
}

impl fmt::Debug for Properties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hidden = self.iter().map(|(name, _)| (name, Secret::new("")));
        f.debug_map().entries(hidden).finish()
    }
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

#[cfg(test)]
mod tests {
    use alloc::format;

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
