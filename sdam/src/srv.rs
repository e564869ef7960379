//! Parses `mongodb` and `mongodb+srv` connection strings, and makes the look-ups that `mongodb+srv`
//! strings require (Initial DNS Seedlist Discovery).

use std::{panic::AssertUnwindSafe, time::Duration};

use futures::future::{self, FutureExt, TryFutureExt as _};
use sdam_core::{
    error::{Error, ErrorKind, Stage},
    options::{ConfigError, Options},
    rng::Rng,
    srv::SrvRecords,
    time::Instant,
    uri::ConnectionString,
};
use sdam_transport::{race, resolve::Resolver, runtime::Backend};

/// Parses a connection string, and looks up the hosts and options of a `mongodb+srv` string.
///
/// The topology polls the SRV record to notice when a sharded cluster's routers are added or
/// removed, unless the deployment is a replica set or behind a load balancer.
///
/// The SRV and the TXT record are looked up at the same time, within `connectTimeoutMS`, by the
/// [resolver](Backend::resolver). With the feature `srv`, the functions of
/// [`runtime`](crate::runtime) set a resolver. A `mongodb://` string needs no look-up, so the
/// future is ready at once.
///
/// ```no_run
/// # #[cfg(feature = "runtime-tokio")]
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = sdam::runtime::tokio()?;
/// let options = sdam::resolve("mongodb+srv://cluster.example.com", &runtime.backend).await?;
/// let topology = sdam::TopologyBuilder::new(options).start(runtime)?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// An error at [`Stage::Dns`] if a look-up fails; a later attempt may succeed. An error of kind
/// [`Invalid`](ErrorKind::Invalid), with the [`ConfigError`] as the source, if the string or its
/// records are invalid.
///
/// # Cancel safety
///
/// May be dropped at any time without side effects.
pub async fn resolve(uri: &str, backend: &Backend) -> Result<Options, Error> {
    let string = ConnectionString::parse(uri)?;
    let Some(srv) = string.srv() else {
        return Ok(string.into_options()?);
    };
    let Some(resolver) = &backend.resolver else {
        return Err(Error::from(ConfigError::new(
            "mongodb+srv",
            srv.host.clone(),
            "the runtime has no resolver to look up its hosts",
            "enable the Cargo feature `srv` of sdam, set `Backend::resolver`, or list the hosts \
             in a mongodb:// string",
        )));
    };
    let timeout = string.connect_timeout();
    let deadline = timeout.map(|timeout| backend.clock.now() + timeout);
    let lookup = Lookup { backend, resolver: &**resolver, timeout, deadline };
    let (srv_name, txt_name) = (srv.query_name(), &srv.host);
    let failed = |record, name: &str, error: Error| {
        error.within(&format!("the {record} record of {name} could not be looked up"))
    };
    let records = lookup.srv(&srv_name);
    let records = records.map_err(|error| failed("SRV", &srv_name, error));
    let txt = lookup.txt(txt_name);
    let txt = txt.map_err(|error| failed("TXT", txt_name, error));
    let (records, txt) = future::try_join(records, txt).await?;
    let mut rng = Rng::new(backend.next_seed());
    Ok(string.resolved(&records, &txt, &mut rng)?.into_options()?)
}

/// Looks up records until `deadline`. If the resolver panics, the look-up returns an error.
pub(crate) struct Lookup<'l> {
    pub(crate) backend: &'l Backend,
    pub(crate) resolver: &'l dyn Resolver,
    /// The value of `connectTimeoutMS`, or `None` if there is no limit.
    pub(crate) timeout: Option<Duration>,
    pub(crate) deadline: Option<Instant>,
}

impl Lookup<'_> {
    /// Looks up the SRV records of `name`.
    pub(crate) async fn srv(&self, name: &str) -> Result<SrvRecords, Error> {
        self.finish(self.resolver.lookup_srv(name, self.left())).await
    }

    async fn txt(&self, name: &str) -> Result<Vec<Box<str>>, Error> {
        self.finish(self.resolver.lookup_txt(name, self.left())).await
    }

    /// Returns the time left until the deadline, which limits a blocking resolver.
    fn left(&self) -> Option<Duration> {
        let now = self.backend.clock.now();
        self.deadline.map(|deadline| deadline.since(now))
    }

    async fn finish<T>(&self, lookup: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let lookup = AssertUnwindSafe(lookup).catch_unwind();
        match race::deadline(&*self.backend.clock, self.deadline, lookup).await {
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
