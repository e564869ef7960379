//! The client's route to the deployment, which each plan chooses at random.

use std::{fmt, time::Duration};

use sdam_core::{
    address::ServerAddress,
    options::{Options, ProxyOptions, TlsOptions},
    rng::Rng,
};
use sdam_sim::runtime::Sim;

use super::{Shape, host};

/// The client's route to the deployment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// True if the servers require TLS.
    pub tls: bool,
    /// The proxy that the client uses, if any.
    pub proxy: ProxyUse,
    /// True if the client finds the mongoses of a sharded cluster through SRV records.
    pub srv: bool,
}

/// The kind of proxy that a client uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProxyUse {
    /// No proxy.
    #[default]
    None,
    /// A proxy without authentication.
    Anonymous,
    /// A proxy that requires a user name and a password.
    Login,
}

/// The host of the SRV connection string.
const SRV_HOST: &str = "cluster.sim.test";
/// The name of the SRV records.
pub(crate) const SRV_NAME: &str = "_mongodb._tcp.cluster.sim.test";
/// The maximum time to live of the SRV records that a plan sets.
pub(super) const MAX_TTL: Duration = Duration::from_secs(90);
/// The user name and password of the proxy.
const LOGIN: (&str, &str) = ("user", "password");

impl Access {
    /// Direct plain-text connections to the servers' addresses.
    pub const PLAIN: Self = Self { tls: false, proxy: ProxyUse::None, srv: false };

    pub(super) fn draw(shape: Shape, rng: &mut Rng) -> Self {
        Self {
            tls: rng.below(3) == 0,
            proxy: match rng.below(8) {
                0 => ProxyUse::Anonymous,
                1 => ProxyUse::Login,
                _ => ProxyUse::None,
            },
            srv: rng.below(2) == 0 && shape == Shape::Sharded,
        }
    }

    /// Returns whether there is a proxy.
    pub fn is_proxied(self) -> bool {
        self.proxy != ProxyUse::None
    }

    /// Sets up TLS on the servers, the proxy and the SRV records. Returns the connection string.
    pub(crate) fn prepare(self, sim: &Sim) -> String {
        if self.tls {
            sim.tls().require();
        }
        if self.is_proxied() {
            let login = (self.proxy == ProxyUse::Login).then_some(LOGIN);
            sim.proxies().add(proxy(), login);
        }
        if self.srv { sim.dns().publish(SRV_HOST, Duration::from_secs(60)) } else { sim.uri() }
    }

    /// Sets the client's options.
    pub(super) fn configure(self, options: &mut Options) {
        options.tls = self.tls.then(TlsOptions::default);
        let proxy = proxy();
        let port = proxy.port().unwrap_or_default();
        let own = ProxyOptions::new(proxy.host(), port);
        options.proxy = match self.proxy {
            ProxyUse::None => None,
            ProxyUse::Anonymous => Some(own),
            ProxyUse::Login => Some(own.with_credential(LOGIN.0, LOGIN.1)),
        };
    }
}

pub(super) fn proxy() -> ServerAddress {
    ServerAddress::new("proxy", 1080)
}

/// Returns the address of a mongos, in a domain that SRV records may name.
pub(super) fn mongos(index: u64) -> ServerAddress {
    let host = host(index);
    ServerAddress::new(&format!("{}.sim.test", host.host()), 27017)
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.tls { "TLS, " } else { "" })?;
        f.write_str(match self.proxy {
            ProxyUse::None => "",
            ProxyUse::Anonymous => "proxy, ",
            ProxyUse::Login => "proxy with login, ",
        })?;
        f.write_str(if self.srv { "SRV records, " } else { "" })
    }
}
