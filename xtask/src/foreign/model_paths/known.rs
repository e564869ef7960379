//! The known differences of other drivers, each with the rule that decides it.

use std::fmt;

use sdam_core::names;
use serde::Deserialize;
use serde_json::{Value, json};

names! {
    /// A driver that replays the tests.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Driver {
        /// The driver for Python.
        PyMongo = "PyMongo",
        /// The driver for Rust, as published.
        Rust = "the Rust driver",
    }
}

/// A phase of a test whose outcome is different. The outcome of the phase before is equal.
#[derive(Debug, Deserialize)]
pub(super) struct Difference {
    path: usize,
    before: Value,
    step: Value,
    expected: Value,
    actual: Value,
}

/// A known kind of difference.
pub(super) struct Known {
    drivers: &'static [Driver],
    /// The rule in docs/conformance.
    pub(super) rule: &'static str,
    /// The side that follows the specification.
    pub(super) right: &'static str,
    pub(super) about: &'static str,
    /// Changes the driver's outcome to what it would be without this kind of difference.
    mend: fn(&Difference, &mut Value),
}

/// The wire version of MongoDB 4.2, whose primaries keep connections when they step down.
const KEEPS_CONNECTIONS: i64 = 8;

/// The wire version of MongoDB 6.0, from which on election ids are compared first.
const ELECTION_ID_FIRST: i64 = 17;

const PRIMARY: &str = "RSPrimary";
const MINUTES: &str = "logicalSessionTimeoutMinutes";
const DATA_BEARING: [&str; 4] = ["Standalone", "Mongos", PRIMARY, "RSSecondary"];
const OURS: &str = "ours is right";
const BOTH: &[Driver] = &[Driver::PyMongo, Driver::Rust];

pub(super) const KNOWN: &[Known] = &[
    Known {
        drivers: &[Driver::PyMongo],
        rule: "C-6",
        right: OURS,
        about: "the set name of a member without a configuration is stored",
        mend: |own, outcome| {
            if own.before["topologyType"] == "Single"
                && servers(outcome).any(|own| own["type"] == "RSGhost" && !own["setName"].is_null())
            {
                // A direct connection compares the name with that of the connection string.
                outcome.clone_from(&own.expected);
            }
            for server in servers(outcome).filter(|own| own["type"] == "RSGhost") {
                server["setName"] = Value::Null;
            }
        },
    },
    Known {
        drivers: &[Driver::PyMongo],
        rule: "D-31",
        right: OURS,
        about: "a former primary keeps its topology version",
        mend: |own, outcome| {
            for (address, old) in own.before["servers"].as_object().into_iter().flatten() {
                if let Some(server) = outcome["servers"].get_mut(address)
                    && own.reply().is_some_and(|(by, _)| by != address)
                    && old["type"] == PRIMARY
                    && server["type"] == "Unknown"
                {
                    server["topologyVersion"] = Value::Null;
                }
            }
        },
    },
    Known {
        drivers: BOTH,
        rule: "I-12",
        right: "ours is right by the text, the driver by the pseudocode",
        about: "NotWritablePrimary in a handshake does not clear the pool",
        mend: |own, outcome| {
            let is_early = |error: &&Value| error["when"] == "beforeHandshakeCompletes";
            let error = own.error().filter(is_early);
            if let Some(error) = error.filter(|error| error["response"]["code"] == 10_107) {
                clear(outcome, text(&error["address"]));
            }
        },
    },
    Known {
        drivers: BOTH,
        rule: "F-50",
        right: OURS,
        about: "a check that fails with an old topology version does not make the server Unknown",
        mend: |own, outcome| {
            let Some((address, reply)) = own.reply() else {
                return;
            };
            let known = &own.before["servers"][address]["topologyVersion"];
            let version = &reply["topologyVersion"];
            let is_old = version["processId"] == known["processId"]
                && version["counter"].as_i64() < known["counter"].as_i64();
            if reply["ok"] == 0 && is_old && own.changes_only_pools(outcome) {
                outcome.clone_from(&own.expected);
            }
        },
    },
    Known {
        drivers: BOTH,
        rule: "D-35",
        right: "both are right, since the specification no longer supports these servers",
        about: "the pool of a former primary before 4.2 is not cleared",
        mend: |own, outcome| {
            let Some((by, _)) = own.reply() else {
                return;
            };
            for (address, old) in own.before["servers"].as_object().into_iter().flatten() {
                let is_old = old["maxWireVersion"].as_i64() < Some(KEEPS_CONNECTIONS);
                let is_displaced = old["type"] == PRIMARY && by != address;
                if is_old && is_displaced && outcome["servers"][address]["type"] == "Unknown" {
                    clear(outcome, address);
                }
            }
        },
    },
    Known {
        drivers: &[Driver::Rust],
        rule: "D-50",
        right: OURS,
        about: "set versions are compared before election ids, also since 6.0",
        mend: |own, outcome| {
            let Some((address, reply)) = own.reply() else {
                return;
            };
            let is_new = reply["isWritablePrimary"] == true
                && reply["maxWireVersion"].as_i64() >= Some(ELECTION_ID_FIRST);
            let verdict = |all: &Value| (maxima(all), all["servers"][address]["type"].clone());
            let (maxima, is_other) = (maxima(outcome), verdict(outcome) != verdict(&own.expected));
            if is_new && is_other && maxima == maxima_before_6_0(&own.before, reply) {
                outcome.clone_from(&own.expected);
            }
        },
    },
    Known {
        drivers: &[Driver::Rust],
        rule: "D-28",
        right: OURS,
        about: "a set whose primary became another member type is still ReplicaSetWithPrimary",
        mend: |own, outcome| {
            let is_primary = |server: &mut Value| server["type"] == PRIMARY;
            let has_primary = servers(outcome).any(is_primary);
            if own.reply().is_some()
                && !has_primary
                && outcome["topologyType"] == "ReplicaSetWithPrimary"
            {
                outcome["topologyType"] = "ReplicaSetNoPrimary".into();
            }
        },
    },
    Known {
        drivers: &[Driver::Rust],
        rule: "C-4",
        right: OURS,
        about: "a member with `isreplicaset` and a set name is RSOther and not RSGhost",
        mend: |own, outcome| {
            let is_ghost =
                |reply: &Value| reply["isreplicaset"] == true && !reply["setName"].is_null();
            if let Some((address, _)) = own.reply().filter(|(_, reply)| is_ghost(reply)) {
                let server = &outcome["servers"][address];
                // A member of another set is removed.
                if server["type"] == "RSOther" || server.is_null() {
                    outcome.clone_from(&own.expected);
                }
            }
        },
    },
    Known {
        drivers: &[Driver::Rust],
        rule: "D-80",
        right: OURS,
        about: "the session timeout is lowered by each reply, and not the minimum of all servers",
        mend: |own, outcome| {
            if outcome[MINUTES] == minutes_by_reply(own) {
                outcome[MINUTES].clone_from(&own.expected[MINUTES]);
            }
        },
    },
    Known {
        drivers: &[Driver::Rust],
        rule: "F-50",
        right: OURS,
        about: "an error that repeats the last one does not clear the pool",
        mend: |own, outcome| {
            let failed = own.reply().filter(|(_, reply)| reply["ok"] != 1);
            let reported = own.error().map(|error| text(&error["address"]));
            let address = failed.map(|(address, _)| address).or(reported);
            let Some(address) = address else {
                return;
            };
            // The driver compares only the codes of errors, not their topology versions.
            let [before, after] = [&own.before, &*outcome].map(|all| &all["servers"][address]);
            if before["type"] == after["type"] && before["pool"] == after["pool"] {
                clear(outcome, address);
            }
        },
    },
];

/// Returns the greatest set version and election id after a primary's reply, by the rule for
/// servers before 6.0.
fn maxima_before_6_0(before: &Value, reply: &Value) -> (Option<i64>, Value) {
    let (version, id) = maxima(before);
    let own = (reply["setVersion"].as_i64(), reply["electionId"].clone());
    let complete = own.0.is_some() && !own.1.is_null();
    let is_stale = complete
        && version.is_some()
        && !id.is_null()
        && (version, id.to_string()) > (own.0, own.1.to_string());
    if is_stale {
        return (version, id);
    }
    (version.max(own.0), if complete { own.1 } else { id })
}

/// Returns the session timeout after a reply, if it only falls while there is one.
fn minutes_by_reply(own: &Difference) -> Value {
    let before = &own.before[MINUTES];
    let is_data_bearing = |reply: &Value| {
        reply["ok"] == 1
            && ["arbiterOnly", "hidden", "isreplicaset"].iter().all(|flag| reply[flag].is_null())
    };
    let Some((address, reply)) = own.reply().filter(|(_, reply)| is_data_bearing(reply)) else {
        return before.clone();
    };
    let mut all = vec![&reply[MINUTES]];
    if before.is_null() {
        let servers = own.before["servers"].as_object().into_iter().flatten();
        let others = servers.filter(|(other, server)| {
            *other != address && DATA_BEARING.iter().any(|own| server["type"] == **own)
        });
        all.extend(others.map(|(_, server)| &server[MINUTES]));
    } else {
        all.push(before);
    }
    all.into_iter().min_by_key(|minutes| minutes.as_i64()).cloned().unwrap_or_default()
}

fn maxima(outcome: &Value) -> (Option<i64>, Value) {
    (outcome["maxSetVersion"].as_i64(), outcome["maxElectionId"].clone())
}

impl Difference {
    /// Returns the positions in [`KNOWN`] of the reasons; `None` if they do not explain the
    /// difference completely.
    pub(super) fn explain(&self, driver: Driver) -> Option<Vec<usize>> {
        let mut outcome = self.actual.clone();
        let mut reasons = Vec::new();
        for (index, known) in KNOWN.iter().enumerate() {
            if known.drivers.contains(&driver) {
                let before = outcome.clone();
                (known.mend)(self, &mut outcome);
                reasons.extend((outcome != before).then_some(index));
            }
        }
        (outcome == self.expected).then_some(reasons)
    }

    /// Returns a text that is equal for equal transitions.
    pub(super) fn contents(&self) -> String {
        json!([self.before, self.step, self.actual]).to_string()
    }

    /// Returns the server of a check, and the reply; an empty one if the connection broke.
    fn reply(&self) -> Option<(&str, &Value)> {
        let response = &self.step["responses"][0];
        Some((response[0].as_str()?, &response[1]))
    }

    fn error(&self) -> Option<&Value> {
        self.step.get("applicationErrors")?.get(0)
    }

    fn changes_only_pools(&self, outcome: &Value) -> bool {
        let (mut before, mut after) = (self.before.clone(), outcome.clone());
        for server in servers(&mut before).chain(servers(&mut after)) {
            server["pool"] = Value::Null;
        }
        before == after
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, before, step, expected, actual } = self;
        write!(
            f,
            "line {}: {step}\n    before   {before}\n    expected {expected}\n    actual   {actual}",
            path + 1,
        )
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn servers(outcome: &mut Value) -> impl Iterator<Item = &mut Value> {
    outcome["servers"].as_object_mut().into_iter().flatten().map(|(_, server)| server)
}

/// Counts a clear of the server's pool.
fn clear(outcome: &mut Value, address: &str) {
    if let Some(generation) =
        outcome["servers"].get_mut(address).map(|own| &mut own["pool"]["generation"])
    {
        *generation = generation.as_u64().map(|number| number + 1).into();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Difference, Driver, KNOWN};

    #[test]
    fn only_a_known_difference_is_explained_and_only_for_its_driver() {
        let outcome = |topology: &str, role: &str| {
            json!({
                "topologyType": topology,
                "logicalSessionTimeoutMinutes": null,
                "servers": { "a:1": { "type": role, "pool": { "generation": 0 } } },
            })
        };
        let explained = |driver, actual: &str| {
            let difference = Difference {
                path: 0,
                before: outcome("ReplicaSetWithPrimary", "RSPrimary"),
                step: json!({ "responses": [["a:1", { "ok": 1, "secondary": true }]] }),
                expected: outcome("ReplicaSetNoPrimary", "RSSecondary"),
                actual: outcome(actual, "RSSecondary"),
            };
            let reasons = difference.explain(driver)?;
            Some(reasons.into_iter().map(|reason| KNOWN[reason].rule).collect::<Vec<_>>())
        };
        assert_eq!(explained(Driver::Rust, "ReplicaSetWithPrimary"), Some(vec!["D-28"]));
        assert_eq!(explained(Driver::PyMongo, "ReplicaSetWithPrimary"), None);
        assert_eq!(explained(Driver::Rust, "Sharded"), None);
    }
}
