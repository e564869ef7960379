//! Servers that answer in place of a member, as if the member's address led to another deployment.

use bson::{Document, doc};

/// The server that clients find at a member's address in place of the member.
///
/// The impostor's replies to hello have no topology version, so clients poll it. All commands
/// other than hello reach the member itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[derive(strum::Display, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Impostor {
    /// A server without a replica set, such as a member that was restarted without
    /// `--replSet`.
    Standalone,
    /// A mongos.
    Mongos,
    /// A member that does not know its configuration yet.
    Ghost,
    /// An arbiter of the set.
    Arbiter,
    /// A hidden member of the set.
    Hidden,
    /// A secondary that has another name in the configuration.
    Renamed,
    /// A secondary of another set.
    OtherSet,
    /// The primary of another set.
    OtherPrimary,
}

impl Impostor {
    /// Every value, in declaration order.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the name, for logs, records and counters.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The fields of a hello reply that identify the server that answers.
const IDENTITY: [&str; 20] = [
    "topologyVersion",
    "isWritablePrimary",
    "ismaster",
    "msg",
    "setName",
    "setVersion",
    "electionId",
    "hosts",
    "passives",
    "arbiters",
    "primary",
    "me",
    "secondary",
    "arbiterOnly",
    "passive",
    "hidden",
    "tags",
    "lastWrite",
    "isreplicaset",
    "secondaryDelaySecs",
];

impl Impostor {
    /// The name of the set to which [`OtherSet`](Self::OtherSet) and
    /// [`OtherPrimary`](Self::OtherPrimary) belong.
    pub const SET: &str = "other";

    /// Changes the reply of the member at `address` in the set `set` into the impostor's reply.
    /// `writable` is the name of the field that states whether a server accepts writes.
    pub(crate) fn answer(self, reply: &mut Document, writable: &str, set: &str, address: &str) {
        for field in IDENTITY {
            reply.remove(field);
        }
        let is_writable = matches!(self, Self::Standalone | Self::Mongos | Self::OtherPrimary);
        reply.insert(writable, is_writable);
        match self {
            Self::Standalone => return,
            Self::Mongos => {
                reply.insert("msg", "isdbgrid");
                return;
            }
            Self::Ghost => {
                reply.extend(doc! { "secondary": false, "isreplicaset": true });
                return;
            }
            _ => {}
        }
        let set = if matches!(self, Self::OtherSet | Self::OtherPrimary) { Self::SET } else { set };
        let me = if self == Self::Renamed { "renamed.test:27017" } else { address };
        reply.extend(doc! {
            "setName": set,
            "setVersion": 1,
            "hosts": [address],
            "me": me,
            "secondary": matches!(self, Self::Renamed | Self::OtherSet),
        });
        match self {
            Self::Arbiter => drop(reply.insert("arbiterOnly", true)),
            Self::Hidden => drop(reply.insert("hidden", true)),
            _ => {}
        }
    }
}
