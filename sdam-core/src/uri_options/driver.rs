//! The options of a connection string that the framework leaves to a driver.

use alloc::boxed::Box;
use core::{fmt, time::Duration};

use super::{
    Settings,
    table::{self, User},
    value::{Properties, Secret, Value, limit},
};

/// The options of a connection string that concern the pools, the authentication and the operations
/// of a driver. The framework checks only their syntax, except for the options of TLS and proxies,
/// for which [`Options`](crate::options::Options) has fields of its own.
///
/// `None` means that the string has no valid value for the option; the driver chooses the default.
/// A time limit of zero means no limit, so the method of a time limit returns `None` in this case,
/// too; [`value`](Self::value) distinguishes the two cases.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct DriverOptions(Settings);

impl DriverOptions {
    pub(crate) fn of(settings: &Settings) -> Self {
        let is_drivers = |name| table::find(name).is_some_and(|(row, _)| row.user == User::Driver);
        let settings = settings.iter().filter(|(name, _)| is_drivers(name));
        Self(settings.map(|(name, value)| (*name, value.clone())).collect())
    }

    /// Returns the value of the option `name`, ignoring case.
    pub fn value(&self, name: &str) -> Option<&Value> {
        let (row, _) = table::find(name)?;
        self.0.get(row.name)
    }

    /// Returns each option's name, in the specification's spelling, and its value; sorted by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&'static str, &Value)> {
        self.0.iter().map(|(name, value)| (*name, value))
    }
}

impl fmt::Debug for DriverOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Declares one method per option.
macro_rules! methods {
    ($($(#[$doc:meta])* $method:ident: $type:ty = $name:literal;)*) => {
        impl DriverOptions {
            $(
                #[doc = concat!("`", $name, "`:")]
                $(#[$doc])*
                pub fn $method(&self) -> Option<$type> {
                    typed(&self.0, $name)
                }
            )*
        }

        /// The names of the options that have a method; a test checks that the table contains them.
        #[cfg(test)]
        pub(super) const LOOKED_UP: &[&str] = &[$($name),*];
    };
}

methods! {
    /// the authentication mechanism.
    auth_mechanism: &str = "authMechanism";
    /// the properties of the authentication mechanism.
    auth_mechanism_properties: &Properties = "authMechanismProperties";
    /// the database that defines the user; see also
    /// [`ConnectionString::auth_source`](crate::uri::ConnectionString::auth_source).
    auth_source: &str = "authSource";
    /// the compressors for messages, in order of preference.
    compressors: &[Box<str>] = "compressors";
    /// whether a retry avoids servers that were overloaded.
    enable_overload_retargeting: bool = "enableOverloadRetargeting";
    /// whether a write waits for the journal.
    journal: bool = "journal";
    /// the maximum number of retries of an operation after overload errors.
    max_adaptive_retries: u32 = "maxAdaptiveRetries";
    /// the maximum number of connections that a pool establishes at the same time.
    max_connecting: u32 = "maxConnecting";
    /// the maximum idle time of a pooled connection; `None` for no limit.
    max_idle_time: Duration = "maxIdleTimeMS";
    /// the maximum number of connections in a pool; 0 for no limit.
    max_pool_size: u32 = "maxPoolSize";
    /// the minimum number of connections in a pool.
    min_pool_size: u32 = "minPoolSize";
    /// the level of the default read concern.
    read_concern_level: &str = "readConcernLevel";
    /// whether reads are retried.
    retry_reads: bool = "retryReads";
    /// whether writes are retried.
    retry_writes: bool = "retryWrites";
    /// the maximum time that an operation waits to send or receive; `None` for no limit.
    socket_timeout: Duration = "socketTimeoutMS";
    /// the maximum duration of an operation as a whole; `None` for no limit.
    timeout: Duration = "timeoutMS";
    /// the default write concern: a [number](Value::Number) of servers or a [name](Value::Text).
    w: &Value = "w";
    /// the maximum time that an operation waits for a connection; `None` for no limit. Deprecated.
    wait_queue_timeout: Duration = "waitQueueTimeoutMS";
    /// the maximum time that a write waits for its write concern; `None` for no limit.
    w_timeout: Duration = "wTimeoutMS";
    /// the compression level of zlib, from 0 to 9; -1 for its default.
    zlib_compression_level: i32 = "zlibCompressionLevel";
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
    &'a [Box<str>]: Value::List(list) => Some(list);
    &'a Properties: Value::Properties(properties) => Some(properties);
}

impl<'a> Typed<'a> for &'a Value {
    fn of(value: &'a Value) -> Option<Self> {
        Some(value)
    }
}
