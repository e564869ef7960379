//! Connection strings of both kinds, with the look-ups of `mongodb+srv` (Initial DNS Seedlist
//! Discovery).

use std::{fmt, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::future::{self, FutureExt};
use sdam_core::{
    error::{Error, ErrorKind, Stage},
    options::{ConfigError, Options},
    rng::Rng,
    srv::SrvRecords,
    time::Instant,
    uri::ConnectionString,
};
use sdam_transport::{race, resolve::Resolver, runtime::Io};

/// Parses a connection string, and looks up the hosts and options of a `mongodb+srv` string.
///
/// The SRV and the TXT record are looked up at the same time, within `connectTimeoutMS`, by the
/// [resolver](Io::resolver), which the functions of [`runtime`](crate::runtime) set with the feature
/// `srv`. A `mongodb://` string needs no look-up, so the future is ready at once.
///
/// ```no_run
/// # #[cfg(feature = "runtime-tokio")]
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = sdam::runtime::tokio()?;
/// let options = sdam::resolve("mongodb+srv://cluster.example.com", &runtime.io).await?;
/// for seed in &options.seeds {
///     println!("{seed}");
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// If the string is invalid, if a look-up fails, or if the records are missing or invalid.
///
/// # Cancel safety
///
/// May be dropped at any time without side effects.
pub async fn resolve(uri: &str, io: &Io) -> Result<Options, ResolveError> {
    let string = ConnectionString::parse(uri)?;
    let Some(srv) = string.srv() else {
        return Ok(string.into_options()?);
    };
    let Some(resolver) = &io.resolver else {
        return Err(ResolveError::Config(ConfigError::new(
            "mongodb+srv",
            srv.host.clone(),
            "the runtime has no resolver to look up its hosts",
            "enable the Cargo feature `srv` of sdam, set one with `Io::with_resolver`, or list the \
             hosts in a mongodb:// string",
        )));
    };
    let lookup = Lookup::new(io, resolver, string.connect_timeout());
    let (srv_name, txt_name) = (srv.query_name(), &srv.host);
    let records = lookup
        .srv(&srv_name)
        .map(|outcome| outcome.map_err(|error| ResolveError::failed("SRV", &srv_name, error)));
    let txt = lookup
        .txt(txt_name)
        .map(|outcome| outcome.map_err(|error| ResolveError::failed("TXT", txt_name, error)));
    let (records, txt) = future::try_join(records, txt).await?;
    let mut rng = Rng::new(io.next_seed());
    Ok(string.resolved(&records, &txt, &mut rng)?.into_options()?)
}

/// Look-ups that begin now, at a resolver that may panic.
pub(crate) struct Lookup<'l> {
    io: &'l Io,
    resolver: &'l dyn Resolver,
    /// `connectTimeoutMS`; `None` for no limit.
    timeout: Option<Duration>,
    deadline: Option<Instant>,
}

impl<'l> Lookup<'l> {
    pub(crate) fn new(
        io: &'l Io,
        resolver: &'l Arc<dyn Resolver>,
        timeout: Option<Duration>,
    ) -> Self {
        Self {
            io,
            resolver: &**resolver,
            timeout,
            deadline: timeout.map(|timeout| io.clock.now() + timeout),
        }
    }

    /// Looks up the SRV records of `name`.
    pub(crate) async fn srv(&self, name: &str) -> Result<SrvRecords, Error> {
        self.finish(self.resolver.lookup_srv(name, self.left()))
            .await
    }

    async fn txt(&self, name: &str) -> Result<Vec<Box<str>>, Error> {
        self.finish(self.resolver.lookup_txt(name, self.left()))
            .await
    }

    /// Returns the time left for a resolver that blocks.
    fn left(&self) -> Option<Duration> {
        let now = self.io.clock.now();
        self.deadline.map(|deadline| deadline.since(now))
    }

    async fn finish<T>(&self, lookup: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let lookup = AssertUnwindSafe(lookup).catch_unwind();
        match race::deadline(&*self.io.clock, self.deadline, lookup).await {
            Ok(Ok(outcome)) => outcome.map_err(Error::without_context),
            Ok(Err(_)) => {
                let reason = "the resolver panicked";
                Err(Error::new(ErrorKind::Internal, Stage::Dns, reason))
            }
            Err(_) => {
                let limit = self.timeout.unwrap_or_default().as_millis();
                let reason = format!("no answer within {limit} ms (connectTimeoutMS)");
                Err(Error::new(ErrorKind::Timeout, Stage::Dns, reason))
            }
        }
    }
}

/// An error of [`resolve`].
///
/// `Debug` shows the same text as `Display`, for programs whose `main` returns it.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResolveError {
    /// The connection string or its records are invalid, or the runtime has no resolver.
    Config(ConfigError),
    /// A look-up failed.
    Lookup {
        /// The kind of record, `SRV` or `TXT`.
        record: &'static str,
        /// The name that was looked up.
        name: Box<str>,
        /// The cause.
        error: Error,
    },
}

impl ResolveError {
    /// Returns whether a look-up failed, which may succeed if it is repeated.
    pub fn is_lookup(&self) -> bool {
        matches!(self, Self::Lookup { .. })
    }

    fn failed(record: &'static str, name: &str, error: Error) -> Self {
        Self::Lookup {
            record,
            name: name.into(),
            error,
        }
    }
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Lookup {
                record,
                name,
                error,
            } => write!(
                f,
                "the {record} record of {name} could not be looked up: {error}; check the name \
                 servers of this machine, or list the hosts in a mongodb:// string"
            ),
        }
    }
}

impl fmt::Debug for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for ResolveError {}

impl From<ConfigError> for ResolveError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}
