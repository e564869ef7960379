//! A standalone server and a replica set with three members. They are either real or simulated.

use std::net::SocketAddr;

use bson::{Document, doc};
use sdam_live::{Error, MemberSpec, Mongod, ReplicaSet, Version};
use sdam_sim::{Blueprint, Served, serve::Listen, version::ServerVersion};

use crate::{
    cases::{Case, ServerKind, Step},
    conversation::{Conversation, Observed},
};

pub(crate) trait Servers {
    fn standalone(&self) -> SocketAddr;

    fn members(&self) -> Vec<SocketAddr>;

    /// Returns the server's reply to a legacy hello that is sent as OP_MSG.
    fn hello(&self, address: SocketAddr) -> Document {
        let mut server = Conversation::open(address).unwrap();
        server.call(&doc! { "isMaster": 1, "$db": "admin" })
    }

    fn address(&self, kinds: ServerKind) -> SocketAddr {
        let field = match kinds {
            ServerKind::Standalone => return self.standalone(),
            ServerKind::Primary => "ismaster",
            ServerKind::Secondary => "secondary",
        };
        let has_role = |address: &SocketAddr| self.hello(*address).get_bool(field).unwrap();
        self.members().into_iter().find(has_role).unwrap()
    }

    fn version(&self) -> ServerVersion {
        let mut server = Conversation::open(self.standalone()).unwrap();
        let info = server.call(&doc! { "buildInfo": 1, "$db": "admin" });
        info.get_str("version").unwrap().parse().unwrap()
    }
}

impl Case {
    /// Runs the case on a new connection to `address`, and returns the replies.
    pub(crate) fn run(&self, address: SocketAddr) -> Vec<Observed> {
        let mut conversation = Conversation::open(address).unwrap();
        let mut seen = Vec::new();
        for step in &self.steps {
            if let Step::Request(framing, body) = step {
                conversation.send(*framing, body);
            }
            seen.push(conversation.receive());
            if matches!(seen.last(), Some(Observed::Closed)) {
                break;
            }
        }
        seen
    }
}

struct Real {
    standalone: Mongod,
    set: ReplicaSet,
}

impl Servers for Real {
    fn standalone(&self) -> SocketAddr {
        self.standalone.address()
    }

    fn members(&self) -> Vec<SocketAddr> {
        self.set.members().map(|member| member.address()).collect()
    }
}

pub(crate) fn real(version: Version) -> Result<Box<dyn Servers>, Error> {
    Ok(Box::new(Real {
        standalone: Mongod::start(version)?,
        set: ReplicaSet::start(
            version,
            &[MemberSpec::new(), MemberSpec::new(), MemberSpec::new()],
        )?,
    }))
}

struct Simulated {
    standalone: Served,
    set: Served,
}

impl Servers for Simulated {
    fn standalone(&self) -> SocketAddr {
        addresses(&self.standalone)[0]
    }

    fn members(&self) -> Vec<SocketAddr> {
        addresses(&self.set)
    }
}

fn addresses(server: &Served) -> Vec<SocketAddr> {
    let status = server.status().unwrap();
    let addresses = status.members.iter();
    addresses.map(|member| member.address.as_str().parse().unwrap()).collect()
}

pub(crate) fn simulated(version: ServerVersion) -> Box<dyn Servers> {
    let start =
        |blueprint: Blueprint| Listen::new().seed(7).serve(blueprint.version(version)).unwrap();
    Box::new(Simulated {
        standalone: start(Blueprint::standalone()),
        set: start(Blueprint::replica_set(3)),
    })
}
