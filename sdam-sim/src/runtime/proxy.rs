//! Simulated SOCKS5 proxies.

mod session;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use sdam_core::address::ServerAddress;

pub(super) use self::session::{Message, Opening, Refusal, Session, Step};
use super::Shared;

/// A fault of a proxy, with its name in scenarios.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[derive(strum::Display, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ProxyFault {
    /// The proxy is down. Its connections are reset, and new ones are refused.
    Down,
    /// The proxy accepts connections, but neither replies nor forwards anything. Connections
    /// that have lost bytes stay dead.
    Stall,
    /// The proxy's ruleset forbids new connections to servers.
    Reject,
}

impl ProxyFault {
    /// Every value, in declaration order.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the name, for logs, records and counters.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Controls the SOCKS5 proxies of a simulated world.
///
/// A proxy finds members by their names, independently of the program's look-ups. The latency
/// between the program and a proxy is the same as between the program and a member. Network faults
/// between the program and a member also affect connections through a proxy.
///
/// ```
/// use sdam_core::address::ServerAddress;
/// use sdam_sim::{Blueprint, runtime::{ProxyFault, Sim}};
///
/// let sim = Sim::new(42, &Blueprint::standalone());
/// let proxy = ServerAddress::new("proxy", 1080);
/// sim.proxies().add(proxy.clone(), Some(("user", "password")));
/// sim.proxies().set_fault(&proxy, Some(ProxyFault::Down));
/// sim.proxies().set_fault(&proxy, None);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Proxies<'s>(pub(super) &'s Shared);

impl Proxies<'_> {
    /// Starts a proxy at `address`. If `login` is set, the proxy requires this user name and
    /// password.
    pub fn add(&self, address: ServerAddress, login: Option<(&str, &str)>) {
        let login = login.map(|(user, password)| (user.into(), password.into()));
        let proxy = ProxyState { login, fault: None };
        self.0.state().network.proxies.insert(address, proxy);
    }

    /// Sets the fault of the proxy at `address`; `None` ends it. If there is no proxy at `address`,
    /// this has no effect.
    pub fn set_fault(&self, address: &ServerAddress, fault: Option<ProxyFault>) {
        if let Some(proxy) = self.0.state().network.proxies.get_mut(address) {
            proxy.fault = fault;
        }
        if fault == Some(ProxyFault::Down) {
            self.reset(address);
        }
    }

    /// Resets the connections to the proxy at `address`.
    pub fn reset(&self, address: &ServerAddress) {
        self.0.change(|state| state.reset_sockets(|socket| socket.goes_through(address)));
    }
}

/// The proxies, keyed by address.
pub(super) type ProxyStates = BTreeMap<ServerAddress, ProxyState>;

#[derive(Clone, Debug)]
pub(super) struct ProxyState {
    pub(super) login: Option<(Box<str>, Box<str>)>,
    pub(super) fault: Option<ProxyFault>,
}
