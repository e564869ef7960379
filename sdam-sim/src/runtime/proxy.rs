//! Simulated SOCKS5 proxies (RFC 1928, RFC 1929).

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, Ipv6Addr},
};

use sdam_core::address::ServerAddress;

use super::Shared;

/// A fault of a proxy, with its name in scenarios.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[derive(strum::Display, strum::EnumString)]
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

/// A message from a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// The authentication methods that the client offers.
    Greeting(Vec<u8>),
    /// The user name and password.
    Login(Vec<u8>, Vec<u8>),
    /// The server to connect to; `None` for any other request.
    Request(Option<ServerAddress>),
}

/// The messages at the beginning of a connection to a proxy, as sent by the client: a greeting,
/// possibly a login, and a request.
#[derive(Clone, Debug, Default)]
pub(super) struct Opening {
    received: Vec<u8>,
    greeted: bool,
}

/// The error for invalid bytes from a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

impl Opening {
    /// Adds received bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.received.extend(bytes);
    }

    /// Returns the bytes that follow the last message.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.received)
    }

    /// Takes the next message. Returns `None` if it is incomplete.
    pub(super) fn next(&mut self) -> Result<Option<Message>, Malformed> {
        let parsed = match (self.greeted, self.received.first()) {
            (_, None) => return Ok(None),
            (false, Some(5)) => greeting(&self.received),
            (true, Some(1)) => login(&self.received),
            (true, Some(5)) => request(&self.received),
            _ => return Err(Malformed),
        };
        let Some((message, length)) = parsed else {
            return Ok(None);
        };
        self.greeted = true;
        self.received.drain(..length);
        Ok(Some(message))
    }
}

/// Splits off the first `length` bytes. Returns `None` if there are fewer.
fn split(bytes: &[u8], length: u8) -> Option<(&[u8], &[u8])> {
    bytes.split_at_checked(usize::from(length))
}

fn greeting(bytes: &[u8]) -> Option<(Message, usize)> {
    let (methods, _) = split(bytes.get(2..)?, bytes[1])?;
    Some((Message::Greeting(methods.to_vec()), 2 + methods.len()))
}

fn login(bytes: &[u8]) -> Option<(Message, usize)> {
    let (user, rest) = split(bytes.get(2..)?, bytes[1])?;
    let (length, rest) = rest.split_first()?;
    let (password, _) = split(rest, *length)?;
    let length = 3 + user.len() + password.len();
    Some((Message::Login(user.to_vec(), password.to_vec()), length))
}

fn request(bytes: &[u8]) -> Option<(Message, usize)> {
    let (head, rest) = bytes.split_first_chunk::<4>()?;
    let (host, rest) = match head[3] {
        1 => {
            let (ip, rest) = rest.split_first_chunk::<4>()?;
            (Ipv4Addr::from(*ip).to_string(), rest)
        }
        4 => {
            let (ip, rest) = rest.split_first_chunk::<16>()?;
            (Ipv6Addr::from(*ip).to_string(), rest)
        }
        _ => {
            let (length, rest) = rest.split_first()?;
            let (name, rest) = split(rest, *length)?;
            (String::from_utf8_lossy(name).into_owned(), rest)
        }
    };
    let (port, rest) = rest.split_first_chunk::<2>()?;
    let connects = head[1] == 1 && matches!(head[3], 1 | 3 | 4);
    let target = connects.then(|| ServerAddress::new(&host, u16::from_be_bytes(*port)));
    Some((Message::Request(target), bytes.len() - rest.len()))
}

/// The proxy's end of a connection that has not reached a server yet.
#[derive(Debug, Default)]
pub(super) struct Session {
    opening: Opening,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Opening,
    /// The client has authenticated or does not have to.
    Admitted,
    /// The server never answers, or the connection is about to close.
    Silent,
    Tunnel,
}

/// The next step of the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Reply(Vec<u8>),
    /// Connect to a server, and then call [`Session::connected`].
    Connect(ServerAddress),
    /// Send the reply and close the connection.
    Refuse(Vec<u8>),
    /// Forward these bytes to the server.
    Forward(Vec<u8>),
}

/// The reason why a proxy refuses a connection (the field "REP" in RFC 1928).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Ruleset = 2,
    HostUnreachable = 4,
    ConnectionRefused = 5,
    CommandNotSupported = 7,
}

impl Refusal {
    fn reply(self) -> Vec<u8> {
        reply(self as u8)
    }
}

fn reply(code: u8) -> Vec<u8> {
    vec![5, code, 0, 1, 0, 0, 0, 0, 0, 0]
}

impl Session {
    /// Processes received bytes and returns the next steps. `login` is the required user name and
    /// password.
    pub(super) fn receive(
        &mut self,
        bytes: &[u8],
        login: Option<&(Box<str>, Box<str>)>,
    ) -> Vec<Step> {
        match self.stage {
            Stage::Tunnel => return vec![Step::Forward(bytes.to_vec())],
            Stage::Silent => return Vec::new(),
            Stage::Opening | Stage::Admitted => self.opening.push(bytes),
        }
        let mut steps = Vec::new();
        loop {
            let step = match self.opening.next() {
                Ok(None) => return steps,
                Ok(Some(message)) => self.answer(message, login),
                Err(Malformed) => Step::Refuse(Vec::new()),
            };
            let last = matches!(step, Step::Refuse(_) | Step::Connect(_));
            steps.push(step);
            if last {
                self.stage = Stage::Silent;
                return steps;
            }
        }
    }

    fn answer(&mut self, message: Message, login: Option<&(Box<str>, Box<str>)>) -> Step {
        match (message, login, self.stage) {
            (Message::Greeting(methods), login, _) => {
                let method = if login.is_some() { 2 } else { 0 };
                if !methods.contains(&method) {
                    return Step::Refuse(vec![5, 0xff]);
                }
                if login.is_none() {
                    self.stage = Stage::Admitted;
                }
                Step::Reply(vec![5, method])
            }
            (Message::Login(user, password), Some((own_user, own_password)), _) => {
                if user != own_user.as_bytes() || password != own_password.as_bytes() {
                    return Step::Refuse(vec![1, 1]);
                }
                self.stage = Stage::Admitted;
                Step::Reply(vec![1, 0])
            }
            (Message::Request(Some(target)), _, Stage::Admitted) => Step::Connect(target),
            (Message::Request(None), _, Stage::Admitted) => {
                Step::Refuse(Refusal::CommandNotSupported.reply())
            }
            (Message::Login(..) | Message::Request(_), ..) => Step::Refuse(Vec::new()),
        }
    }

    /// Returns the next steps once [`Step::Connect`] has succeeded or failed.
    pub(super) fn connected(&mut self, outcome: Result<(), Refusal>) -> Vec<Step> {
        if let Err(refusal) = outcome {
            return vec![Step::Refuse(refusal.reply())];
        }
        self.stage = Stage::Tunnel;
        let mut steps = vec![Step::Reply(reply(0))];
        let early = self.opening.rest();
        if !early.is_empty() {
            steps.push(Step::Forward(early));
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sdam_core::{
        error::{Error, Stage},
        options::ProxyOptions,
    };
    use sdam_transport::{connect::Connection, layers::Layers};

    use super::*;
    use crate::{Blueprint, MemberId, runtime::Sim};

    const MEMBER: MemberId = MemberId(0);

    fn proxy() -> ServerAddress {
        ServerAddress::new("proxy", 1080)
    }

    /// Returns a simulation with a server and a proxy.
    fn sim() -> Sim {
        let sim = Sim::new(1, &Blueprint::standalone());
        sim.proxies().add(proxy(), None);
        sim
    }

    /// Connects to the server through the proxy within ten seconds.
    fn connect(sim: &Sim) -> Result<Box<dyn Connection>, Error> {
        let mut layers = Layers::default();
        layers.proxy = Some(ProxyOptions::new("proxy", 1080));
        let transport = sim.runtime().backend.transport.with_layers(layers).unwrap();
        let deadline = sim.now() + Duration::from_secs(10);
        let host = ServerAddress::new("a", 27017);
        sim.block_on(transport.connect(&host, Some(deadline)))
    }

    /// Checks that connecting fails in the stage `Proxy` with this message.
    #[track_caller]
    fn check_refused(sim: &Sim, message: &str) {
        let error = connect(sim).unwrap_err();
        assert_eq!(error.stage(), Stage::Proxy, "{error}");
        assert!(error.message().contains(message), "{error}");
    }

    #[test]
    fn a_fault_meets_new_connections_until_it_ends() {
        let sim = sim();
        for (fault, message) in [
            (ProxyFault::Down, "the proxy cannot be reached"),
            (ProxyFault::Stall, "did not answer in time"),
            (ProxyFault::Reject, "the proxy's rules do not allow"),
        ] {
            sim.proxies().set_fault(&proxy(), Some(fault));
            check_refused(&sim, message);
            sim.network().heal();
            connect(&sim).unwrap();
        }
        sim.network().refuse(MEMBER, true);
        check_refused(&sim, "refuses connections from the proxy");
        sim.network().heal();
        sim.network().blackhole(MEMBER, true);
        check_refused(&sim, "did not answer in time");
    }

    #[test]
    fn a_reset_ends_the_connections_of_a_proxy_and_a_ruleset_none() {
        let sim = sim();
        let mut connection = connect(&sim).unwrap();
        sim.proxies().set_fault(&proxy(), Some(ProxyFault::Reject));
        assert_eq!(sim.connections(), 1);
        sim.proxies().reset(&proxy());
        let error = sim.block_on(connection.recv()).unwrap_err();
        assert!(error.message().contains("reset"), "{error}");
        sim.proxies().set_fault(&proxy(), None);
        let mut connection = connect(&sim).unwrap();
        sim.network().reset(MEMBER);
        sim.block_on(connection.recv()).unwrap_err();
    }
}
