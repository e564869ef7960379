//! Replica sets of real servers.

use std::time::Duration;

use bson::{Bson, Document, doc};

use crate::error::{Error, poll};
use crate::fetch::Version;
use crate::mongod::Mongod;
use crate::tls::ServerTls;

/// The time for which a member that stepped down does not run for election.
const STEP_DOWN: Duration = Duration::from_secs(10);

/// The timeout for reading a member's state.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// The error codes of a set that is busy with another change or election, or of a member that is no
/// longer primary: NotYetInitialized, ConfigurationInProgress, PrimarySteppedDown, LockTimeout,
/// CurrentConfigNotCommittedYet, NotWritablePrimary, InterruptedDueToReplStateChange,
/// NotPrimaryNoSecondaryOk, NotPrimaryOrSecondary.
const TRANSIENT_CODES: [i32; 9] = [94, 109, 189, 24, 308, 10107, 11602, 13435, 13436];

/// A running replica set. Members are identified by the index of their spec in
/// [`ReplicaSet::start`].
#[derive(Debug)]
pub struct ReplicaSet {
    name: String,
    specs: Vec<MemberSpec>,
    members: Vec<Mongod>,
}

impl ReplicaSet {
    /// Starts a set named `rs0` with an election timeout of 2 s. Waits until it has a primary,
    /// every member is primary or secondary, and the first writes have reached a majority.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if there is no binary.
    pub fn start(
        version: impl Into<Option<Version>>,
        members: &[MemberSpec],
    ) -> Result<Self, Error> {
        Self::builder(version).start(members)
    }

    /// Returns a builder for a set with other settings.
    pub fn builder(version: impl Into<Option<Version>>) -> ReplicaSetBuilder {
        ReplicaSetBuilder::new(version.into())
    }

    /// Returns the `setName`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a connection string with all members as seeds, including those that were removed or
    /// are dead.
    pub fn uri(&self) -> String {
        let hosts: Vec<_> = self.members.iter().map(Mongod::host).collect();
        format!("mongodb://{}/?replicaSet={}", hosts.join(","), self.name)
    }

    /// Returns the number of members that were started, including those that were removed.
    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// Returns the member that has the given index.
    ///
    /// # Panics
    /// If there is no such member.
    pub fn member(&self, index: usize) -> &Mongod {
        &self.members[index]
    }

    /// Returns the members in the order of their specs.
    pub fn members(&self) -> impl ExactSizeIterator<Item = &Mongod> {
        self.members.iter()
    }

    /// Waits until there is a primary that accepts writes, and returns its index.
    pub fn primary(&self) -> Result<usize, Error> {
        poll("a primary", || Ok(self.current_primary()))
    }

    /// Returns the indices of the current secondaries.
    pub fn secondaries(&self) -> Vec<usize> {
        let is_secondary = |&index: &usize| {
            self.try_hello(index).is_some_and(|hello| is_true(&hello, "secondary"))
        };
        (0..self.size()).filter(is_secondary).collect()
    }

    /// Waits until there is a primary and every member of its configuration is primary or
    /// secondary. Never succeeds with a dead or stopped member.
    pub fn wait_until_settled(&self) -> Result<(), Error> {
        poll("every member to be primary or secondary", || {
            let Some(primary) = self.current_primary() else {
                return Ok(None);
            };
            let hosts = hosts(&mut self.config(primary)?)?;
            let settled = |index: usize| {
                !hosts.contains(&self.members[index].host())
                    || self.try_hello(index).is_some_and(|hello| is_settled(&hello))
            };
            Ok((0..self.size()).all(settled).then_some(()))
        })
    }

    /// Waits until every electable member knows that a write has reached a majority.
    ///
    /// A primary that is stopped earlier cannot roll back its first writes when it continues. It
    /// then exits: "No stable timestamp available to recover to".
    fn wait_until_committed(&self) -> Result<(), Error> {
        poll("the first writes to be on a majority", || {
            let mut candidates = (0..self.size()).filter(|&index| self.specs[index].priority > 0.0);
            let all = candidates.all(|index| {
                self.try_hello(index).is_some_and(|hello| majority_term(&hello) > Some(0))
            });
            Ok(all.then_some(()))
        })
    }

    /// Writes a document, and waits until every member has it.
    pub fn wait_until_replicated(&self) -> Result<(), Error> {
        let insert = doc! {
            "insert": "replicated",
            "documents": [{}],
            "writeConcern": { "w": self.size() as i64, "wtimeout": 1_000 },
        };
        poll("every member to replicate", || {
            let Some(primary) = self.current_primary() else {
                return Ok(None);
            };
            let reply = self.members[primary].run_command("live", insert.clone());
            Ok(reply.is_ok_and(|reply| !reply.contains_key("writeConcernError")).then_some(()))
        })
    }

    /// Makes the primary step down for 10 s and returns its index. [`ReplicaSet::primary`] waits
    /// for the next primary; a set with a single member has no other candidate.
    pub fn step_down(&self) -> Result<usize, Error> {
        let step_down = doc! {
            "replSetStepDown": STEP_DOWN.as_secs() as i64,
            "secondaryCatchUpPeriodSecs": STEP_DOWN.as_secs() as i64 - 1,
        };
        self.on_primary("the primary to step down", |_| Ok(step_down.clone()))
    }

    /// Makes a member primary, and waits for its election.
    pub fn step_up(&self, index: usize) -> Result<(), Error> {
        poll("a member to be elected", || {
            if self.current_primary() == Some(index) {
                return Ok(Some(()));
            }
            // A member that stepped down recently must be unfrozen before it runs for election.
            self.members[index].run_command("admin", doc! { "replSetFreeze": 0 })?;
            // The result of the election is checked at the next attempt. The command fails until
            // the set is ready for it.
            self.members[index].run_command("admin", doc! { "replSetStepUp": 1 })?;
            Ok(None)
        })
    }

    /// Creates the user for clients once there is a primary, and makes `first` primary.
    fn create_root(&self, first: usize) -> Result<(), Error> {
        let primary = self.primary()?;
        self.members[primary].create_root()?;
        self.members().for_each(Mongod::trust_root);
        self.step_up(first)
    }

    /// Repeats a command on the primary until the set is ready for it. Returns the primary's index.
    fn on_primary(
        &self,
        awaited: &str,
        command: impl Fn(usize) -> Result<Document, Error>,
    ) -> Result<usize, Error> {
        let refused = poll(awaited, || {
            let Some(primary) = self.current_primary() else {
                return Ok(None);
            };
            match command(primary)
                .and_then(|command| self.members[primary].run_command("admin", command))
            {
                Err(Error::Command(error)) if !TRANSIENT_CODES.contains(&error.code) => {
                    Ok(Some(Err(Error::Command(error))))
                }
                other => other.map(|_| Some(Ok(primary))),
            }
        });
        refused?
    }

    /// Returns the member that accepts writes. If two members accept writes, returns the member
    /// with the newer election.
    fn current_primary(&self) -> Option<usize> {
        (0..self.size())
            .filter_map(|index| {
                let hello = self.try_hello(index)?;
                is_true(&hello, "isWritablePrimary")
                    .then(|| (hello.get_object_id("electionId").ok(), index))
            })
            .max()
            .map(|(_, index)| index)
    }

    /// Returns the hello reply of a member, if it answers.
    fn try_hello(&self, index: usize) -> Option<Document> {
        let member = self.members.get(index)?;
        if !member.is_responsive() {
            return None;
        }
        member.connect(HELLO_TIMEOUT).ok()?.hello().ok()
    }

    fn config(&self, primary: usize) -> Result<Document, Error> {
        let reply = self.members[primary].run_command("admin", doc! { "replSetGetConfig": 1 })?;
        let config = reply.get_document("config").cloned();
        config.map_err(|error| Error::Protocol(format!("replSetGetConfig: {error}")))
    }

    fn member_config(&self, index: usize) -> Document {
        let host = self.members[index].host();
        self.specs[index].config(index, &host)
    }
}

/// Returns the term of the newest write that has reached a majority, or -1 before the first such
/// write.
fn majority_term(hello: &Document) -> Option<i64> {
    let last = hello.get_document("lastWrite").ok()?;
    last.get_document("majorityOpTime").ok()?.get_i64("t").ok()
}

fn is_settled(hello: &Document) -> bool {
    is_true(hello, "isWritablePrimary") || is_true(hello, "secondary")
}

fn is_true(hello: &Document, key: &str) -> bool {
    hello.get_bool(key).unwrap_or(false)
}

fn hosts(config: &mut Document) -> Result<Vec<String>, Error> {
    let members = config.get_array_mut("members");
    let members = members.map_err(|error| Error::Protocol(format!("members: {error}")))?;
    let documents = members.iter().filter_map(Bson::as_document);
    Ok(documents.filter_map(|m| m.get_str("host").ok().map(str::to_owned)).collect())
}

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
    fn new(version: Option<Version>) -> Self {
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

    /// Sets the election timeout, which is the time after which members without a primary elect a
    /// new primary.
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

impl ReplicaSet {
    /// Changes the configuration on the primary. `change` receives the whole configuration; the
    /// version is incremented automatically. `change` may be called several times, each time with a
    /// fresh configuration.
    ///
    /// Servers newer than 4.2 allow only one voting member to be added or removed at a time.
    ///
    /// # Errors
    /// [`Error::Command`] if the set refuses the change.
    pub fn reconfig(&self, change: impl Fn(&mut Document)) -> Result<(), Error> {
        self.on_primary("the set to take a configuration", |primary| {
            let mut config = self.config(primary)?;
            let version = config.get_i32("version").unwrap_or_default();
            change(&mut config);
            config.insert("version", version + 1);
            Ok(doc! { "replSetReconfig": config })
        })
        .map(drop)
    }

    /// Removes a member from the configuration; its process keeps running. The primary cannot be
    /// removed.
    pub fn remove(&self, index: usize) -> Result<(), Error> {
        let host = self.member(index).host();
        self.reconfig(|config| {
            if let Ok(members) = config.get_array_mut("members") {
                members.retain(|member| member.as_document().is_none_or(|m| !is_host(m, &host)));
            }
        })
    }

    /// Adds a removed member again, with the same spec.
    pub fn add_back(&self, index: usize) -> Result<(), Error> {
        let member = self.member_config(index);
        self.reconfig(|config| {
            if let Ok(members) = config.get_array_mut("members") {
                members.push(member.clone().into());
            }
        })
    }
}

fn is_host(member: &Document, host: &str) -> bool {
    member.get_str("host").is_ok_and(|found| found == host)
}

/// The configuration of a replica set member. The default is an electable voter of priority 1.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct MemberSpec {
    priority: f64,
    tags: Vec<(String, String)>,
    horizon: Option<String>,
}

impl Default for MemberSpec {
    fn default() -> Self {
        Self::new()
    }
}

impl MemberSpec {
    /// Creates an electable voter of priority 1 without tags.
    pub const fn new() -> Self {
        Self { priority: 1.0, tags: Vec::new(), horizon: None }
    }

    /// Sets the priority; 0 means that the member cannot be elected.
    pub const fn priority(mut self, priority: f64) -> Self {
        self.priority = priority;
        self
    }

    /// Adds a tag. Tags keep the order in which they were added.
    pub fn tag(mut self, name: &str, value: &str) -> Self {
        self.tags.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the member's host name for TLS clients that connect by this name. Set it for all
    /// members or for none. If `host` contains no port, the member's own port is used.
    pub fn horizon(mut self, host: &str) -> Self {
        self.horizon = Some(host.to_owned());
        self
    }

    /// Returns the member's element in the array `members` of a configuration.
    fn config(&self, id: usize, host: &str) -> Document {
        let mut config = doc! { "_id": id as i32, "host": host, "priority": self.priority };
        if !self.tags.is_empty() {
            let tags: Document = self.tags.iter().cloned().map(|(k, v)| (k, v.into())).collect();
            config.insert("tags", tags);
        }
        if let Some((horizon, (_, port))) = self.horizon.as_ref().zip(host.rsplit_once(':')) {
            let outside =
                if horizon.contains(':') { horizon.clone() } else { format!("{horizon}:{port}") };
            config.insert("horizons", doc! { "outside": outside });
        }
        config
    }
}
