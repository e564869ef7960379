//! Administrative commands for a replica set.

use std::{sync::Arc, time::Duration};

use bson::{Bson, Document, doc};
use sdam_core::address::ServerAddress;

use crate::{
    Cluster, MemberId,
    config::{MemberConfig, SetConfig},
    deployment::Role,
    member::Kind,
    message::{
        BAD_VALUE, CommandError, CommandResult, EXCEEDED_TIME_LIMIT, NEW_CONFIG_INCOMPATIBLE,
        NO_REPLICATION_ENABLED, NOT_SECONDARY, NOT_WRITABLE_PRIMARY, Request, flag, number, refuse,
    },
};

impl Cluster {
    pub(super) fn run_replica(&mut self, member: MemberId, request: &Request) -> CommandResult {
        let body = &request.body;
        let role = match &self.member(member).kind {
            Kind::Replica(replica) => replica.role,
            Kind::Standalone => {
                return refuse(NO_REPLICATION_ENABLED, "not running with --replSet");
            }
            Kind::Mongos => return Err(super::command::not_found(request)),
        };
        let period = || {
            let seconds = number(body, &request.name).and_then(|s| u64::try_from(s).ok());
            Duration::from_secs(seconds.unwrap_or(60))
        };
        match &*request.name {
            "replSetStepDown" => {
                if role != Role::Primary {
                    return refuse(NOT_WRITABLE_PRIMARY, "not primary so can't step down");
                }
                if self.best_candidate(Some(member)).is_none() && !flag(body, "force") {
                    return refuse(
                        EXCEEDED_TIME_LIMIT,
                        "No electable secondaries caught up as of now. Please use the \
                         replSetStepDown command with the argument {force: true} to force node to \
                         step down.",
                    );
                }
                self.step_down(member, period());
            }
            "replSetStepUp" => {
                if !self.can_run(member) || !self.run_election(member) {
                    return refuse(125, "Election failed.");
                }
            }
            "replSetFreeze" => {
                if self.repl_set_freeze(member, period()).is_err() {
                    return refuse(NOT_SECONDARY, "cannot freeze node when primary");
                }
            }
            "replSetMaintenance" => {
                if self.set_maintenance(member, flag(body, "replSetMaintenance")).is_err() {
                    return refuse(NOT_SECONDARY, "not secondary");
                }
            }
            "replSetGetConfig" => {
                return match self.replica(member).and_then(|own| own.config.as_ref()) {
                    Some(config) => Ok(doc! { "config": config_document(config) }),
                    None => refuse(94, "no replset config has been received"),
                };
            }
            "replSetReconfig" => {
                let force = flag(body, "force");
                if role != Role::Primary && !force {
                    return refuse(
                        NOT_WRITABLE_PRIMARY,
                        "Safe reconfig is only allowed on a writable PRIMARY.",
                    );
                }
                let config = parse_config(body)?;
                if let Err(error) = self.reconfigure(config, force) {
                    return refuse(NEW_CONFIG_INCOMPATIBLE, error.to_string());
                }
            }
            "replSetGetStatus" => return Ok(self.set_status(member)),
            _ => return Err(super::command::not_found(request)),
        }
        Ok(Document::new())
    }

    fn set_status(&self, member: MemberId) -> Document {
        let Some(own) = self.replica(member) else {
            return Document::new();
        };
        let config = own.config.as_deref();
        let entries = config.map(|config| config.members.as_slice()).unwrap_or_default();
        let members: Vec<Document> = entries
            .iter()
            .enumerate()
            .map(|(index, entry)| self.member_status(member, index, entry))
            .collect();
        doc! {
            "set": config.map_or("", |config| &*config.name),
            "date": bson::DateTime::from_millis(self.date()),
            "myState": state(own.role).0,
            "term": own.term,
            "members": members,
        }
    }

    /// Returns the status that `member` reports for the member that `entry` configures.
    fn member_status(&self, member: MemberId, index: usize, entry: &MemberConfig) -> Document {
        let peer = self.member_at(&entry.address);
        let peers = |peer| {
            let own = self.replica(member);
            peer == member || own.is_some_and(|own| own.peers.get(&peer).is_some_and(|h| h.up))
        };
        let role = peer.filter(|peer| peers(*peer)).and_then(|peer| self.member(peer).role());
        let (number, name) = role.map_or((8, "(not reachable/healthy)"), state);
        doc! {
            "_id": index as i32,
            "name": entry.address.as_str(),
            "health": if role.is_some() { 1.0 } else { 0.0 },
            "state": number,
            "stateStr": name,
            "self": peer == Some(member),
        }
    }
}

/// Returns the number and name of the state that a member in this role reports.
fn state(role: Role) -> (i32, &'static str) {
    match role {
        Role::Startup => (0, "STARTUP"),
        Role::Primary => (1, "PRIMARY"),
        Role::Secondary => (2, "SECONDARY"),
        Role::Recovering => (3, "RECOVERING"),
        Role::Arbiter => (7, "ARBITER"),
        Role::Removed => (10, "REMOVED"),
    }
}

fn config_document(config: &SetConfig) -> Document {
    let members: Vec<Document> = config
        .members
        .iter()
        .enumerate()
        .map(|(index, member)| {
            doc! {
                "_id": index as i32,
                "host": member.address.as_str(),
                "arbiterOnly": member.arbiter,
                "hidden": member.hidden,
                "priority": member.priority,
                "tags": member.tag_document(),
                "secondaryDelaySecs": member.delay.as_secs() as i64,
                "votes": i32::from(member.votes),
            }
        })
        .collect();
    doc! {
        "_id": &*config.name,
        "version": config.version,
        "term": config.term,
        "members": members,
    }
}

fn parse_config(body: &Document) -> Result<SetConfig, CommandError> {
    let invalid =
        |what: &str| CommandError::new(BAD_VALUE, format!("{what} is missing or malformed"));
    let config = body.get_document("replSetReconfig").map_err(|_| invalid("the configuration"))?;
    let name = config.get_str("_id").map_err(|_| invalid("_id"))?;
    let entries = config.get_array("members").map_err(|_| invalid("members"))?;
    let mut parsed = SetConfig::new(name, []);
    for entry in entries {
        let entry = entry.as_document().ok_or_else(|| invalid("a member"))?;
        let host = entry.get_str("host").map_err(|_| invalid("host"))?;
        let address = ServerAddress::parse(host).map_err(|_| invalid("host"))?;
        parsed.members.push(parse_member(address, entry));
    }
    Ok(parsed)
}

fn parse_member(address: ServerAddress, entry: &Document) -> MemberConfig {
    let mut member = MemberConfig::new(address);
    member.arbiter = flag(entry, "arbiterOnly");
    member.hidden = flag(entry, "hidden");
    member.votes = entry.get("votes").is_none() || flag(entry, "votes");
    member.priority = match entry.get("priority") {
        Some(Bson::Double(priority)) => *priority,
        Some(_) => number(entry, "priority").unwrap_or(1) as f64,
        None => 1.0,
    };
    let delay = number(entry, "secondaryDelaySecs").or_else(|| number(entry, "slaveDelay"));
    member.delay = Duration::from_secs(delay.and_then(|d| u64::try_from(d).ok()).unwrap_or(0));
    if let Ok(tags) = entry.get_document("tags") {
        let text = |(name, value): (&String, &Bson)| -> Option<(Arc<str>, Arc<str>)> {
            Some((name.as_str().into(), value.as_str()?.into()))
        };
        member.tags = tags.iter().filter_map(text).collect();
    }
    member
}
