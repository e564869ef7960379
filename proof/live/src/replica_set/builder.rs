//! The builder of replica sets.

use std::time::Duration;

use bson::doc;

use super::{MemberSpec, ReplicaSet};
use crate::error::Error;
use crate::mongod::Mongod;
use crate::tls::ServerTls;
use crate::version::Version;

/// The settings for starting a [`ReplicaSet`].
#[derive(Clone, Debug)]
#[must_use]
pub struct ReplicaSetBuilder {
    version: Option<Version>,
    name: String,
    election_timeout: Duration,
    is_secured: bool,
    is_relayed: bool,
    oplog_megabytes: u32,
    tls: Option<ServerTls>,
}

impl ReplicaSetBuilder {
    pub(super) fn new(version: Option<Version>) -> Self {
        Self {
            version,
            name: "rs0".to_owned(),
            election_timeout: Duration::from_secs(2),
            is_secured: false,
            is_relayed: false,
            oplog_megabytes: 16,
            tls: None,
        }
    }

    /// Sets the set's name.
    pub fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Sets the election timeout, which is the time after which members without a primary elect
    /// one.
    pub const fn election_timeout(mut self, timeout: Duration) -> Self {
        self.election_timeout = timeout;
        self
    }

    /// Makes the members refuse all commands on unauthenticated connections, and creates the user
    /// [`ROOT`](crate::ROOT); see [`Mongod::start_secured`].
    pub const fn secured(mut self) -> Self {
        self.is_secured = true;
        self
    }

    /// Makes clients and members reach each member through a relay that can drop all packets; see
    /// [`Mongod::cut_off`].
    pub const fn relayed(mut self) -> Self {
        self.is_relayed = true;
        self
    }

    /// Sets the size of the oplog, which is 16 MB by default. A member that misses more writes than
    /// the oplog holds cannot catch up.
    pub const fn oplog_megabytes(mut self, size: u32) -> Self {
        self.oplog_megabytes = size;
        self
    }

    /// Makes the members require TLS; see [`Mongod::start_tls`].
    pub fn tls(mut self, tls: ServerTls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Starts the set; see [`ReplicaSet::start`].
    pub fn start(self, specs: &[MemberSpec]) -> Result<ReplicaSet, Error> {
        let first = (0..specs.len())
            .max_by(|&a, &b| specs[a].priority.total_cmp(&specs[b].priority).then(b.cmp(&a)))
            .filter(|&index| specs[index].priority > 0.0)
            .ok_or_else(|| Error::State("no member can be elected".to_owned()))?;

        let oplog = self.oplog_megabytes.to_string();
        let arguments = ["--replSet", &self.name, "--oplogSize", &oplog];
        let tls = self.tls.as_ref();
        let launch = || Mongod::launch(self.version, &arguments, self.is_secured, tls);
        let mut members = specs.iter().map(|_| launch()).collect::<Result<Vec<_>, _>>()?;
        members.iter().try_for_each(Mongod::wait_until_ready)?;
        if self.is_relayed {
            members.iter_mut().try_for_each(Mongod::start_relay)?;
        }

        let set = ReplicaSet { name: self.name, specs: specs.to_vec(), members };
        let config = doc! {
            "_id": &set.name,
            "version": 1,
            "members": (0..set.size()).map(|index| set.member_config(index)).collect::<Vec<_>>(),
            "settings": {
                "electionTimeoutMillis": self.election_timeout.as_millis() as i64,
                "heartbeatIntervalMillis": 500,
                "catchUpTimeoutMillis": self.election_timeout.as_millis() as i64,
            },
        };
        set.members[first].run_command("admin", doc! { "replSetInitiate": config })?;
        if self.is_secured {
            set.create_root(first)?;
        } else {
            // Without this, the first election would begin only after the election timeout.
            set.step_up(first)?;
        }
        set.wait_until_settled()?;
        set.wait_until_committed()?;
        Ok(set)
    }
}
