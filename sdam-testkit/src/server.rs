use std::{sync::Arc, time::Duration};

use bson::{Document, doc};
use sdam_core::{address::ServerAddress, time::Instant};

/// The behaviour of one of the [`Servers`](crate::Servers).
#[derive(Clone)]
pub struct Server {
    /// The error message with which connections are refused and requests fail, or `None` if the
    /// server is reachable.
    pub refusal: Option<String>,
    /// True if requests are not answered. They wait until the behaviour of the server changes, or
    /// until [`Servers::answer`](crate::Servers::answer) is called.
    pub silent: bool,
    /// The time from a request to its reply.
    pub delay: Duration,
    /// The reply to hello.
    pub hello: Reply,
    /// The reply to every other command.
    pub other: Reply,
}

/// Computes the BSON document of a reply. The result `None` breaks the connection instead.
pub type Reply = Arc<dyn Fn(&Request) -> Option<Vec<u8>> + Send + Sync>;

/// A request that needs an answer.
#[derive(Clone, Debug)]
pub struct Request {
    /// The name of the command.
    pub command: String,
    /// The body, a BSON document.
    pub body: Vec<u8>,
    /// The number of the connection. Connections are counted from 1 across all servers.
    pub connection: i64,
    /// The current time.
    pub now: Instant,
}

impl Server {
    /// Returns a server that immediately replies to every command with this document.
    pub fn replying(reply: &Document) -> Self {
        Self::computing(fixed_reply(reply.to_vec().ok()))
    }

    /// Returns a server that immediately replies to every command with the result of `reply`.
    pub fn computing(reply: Reply) -> Self {
        Self {
            refusal: None,
            silent: false,
            delay: Duration::ZERO,
            hello: Arc::clone(&reply),
            other: reply,
        }
    }

    /// Returns a server that cannot be reached. Connection attempts fail with `message`.
    pub fn refusing(message: impl Into<String>) -> Self {
        Self { refusal: Some(message.into()), ..Self::computing(fixed_reply(None)) }
    }

    /// Returns a server that accepts connections but does not answer.
    pub fn silent() -> Self {
        Self { silent: true, ..Self::computing(fixed_reply(None)) }
    }

    /// Returns a server that replies with [`member`].
    pub fn member(hosts: &[ServerAddress], is_primary: bool) -> Self {
        Self::replying(&member(hosts, is_primary))
    }

    /// Returns a server that replies with [`mongos`].
    pub fn mongos() -> Self {
        Self::replying(&mongos())
    }
}

sdam_core::opaque!(Server, |this| refusal: this.refusal, silent: this.silent, delay: this.delay);

/// Returns a reply that is the same for every request.
pub fn fixed_reply(body: Option<Vec<u8>>) -> Reply {
    Arc::new(move |_| body.clone())
}

/// Builds a hello reply from a member of the replica set `rs` with these `hosts`.
pub fn member(hosts: &[ServerAddress], is_primary: bool) -> Document {
    let hosts: Vec<&str> = hosts.iter().map(ServerAddress::as_str).collect();
    doc! {
        "ok": 1, "ismaster": is_primary, "secondary": !is_primary, "setName": "rs",
        "hosts": hosts, "minWireVersion": 0, "maxWireVersion": 17,
    }
}

/// Builds a hello reply from a mongos.
pub fn mongos() -> Document {
    doc! { "ok": 1, "ismaster": true, "msg": "isdbgrid", "minWireVersion": 0, "maxWireVersion": 17 }
}
