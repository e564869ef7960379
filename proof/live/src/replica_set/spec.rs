//! The specification of a member.

use std::time::Duration;

use bson::{Document, doc};

/// The first wire version of MongoDB 5.0, which renamed `slaveDelay`.
const WIRE_VERSION_5_0: i32 = 13;

/// The configuration of a replica set member. The default is an electable voter of priority 1.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct MemberSpec {
    pub(super) priority: f64,
    votes: i32,
    hidden: bool,
    pub(super) arbiter: bool,
    tags: Vec<(String, String)>,
    delay: Duration,
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
        Self {
            priority: 1.0,
            votes: 1,
            hidden: false,
            arbiter: false,
            tags: Vec::new(),
            delay: Duration::ZERO,
            horizon: None,
        }
    }

    /// Sets the priority; 0 means that the member cannot be elected.
    pub const fn priority(mut self, priority: f64) -> Self {
        self.priority = priority;
        self
    }

    /// Removes the vote, and sets the priority to 0.
    pub const fn no_vote(mut self) -> Self {
        self.votes = 0;
        self.priority(0.0)
    }

    /// Hides the member from clients, and sets its priority to 0.
    pub const fn hidden(mut self) -> Self {
        self.hidden = true;
        self.priority(0.0)
    }

    /// Makes the member an arbiter without data, and sets its priority to 0.
    pub const fn arbiter(mut self) -> Self {
        self.arbiter = true;
        self.priority(0.0)
    }

    /// Adds a tag. The order of tags is kept.
    pub fn tag(mut self, name: &str, value: &str) -> Self {
        self.tags.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Delays the replication, and sets the priority to 0. The server's unit is the second.
    pub const fn delayed(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self.priority(0.0)
    }

    /// Sets the member's host name for TLS clients that connect by this name. Set it for all
    /// members or for none. The port is the member's own unless `host` has another.
    pub fn horizon(mut self, host: &str) -> Self {
        self.horizon = Some(host.to_owned());
        self
    }

    /// Returns the element of `members` in a configuration.
    pub(super) fn config(&self, id: usize, host: &str, max_wire_version: i32) -> Document {
        let mut config = doc! {
            "_id": id as i32,
            "host": host,
            "priority": self.priority,
            "votes": self.votes,
            "hidden": self.hidden,
            "arbiterOnly": self.arbiter,
        };
        if !self.tags.is_empty() {
            let tags: Document = self
                .tags
                .iter()
                .cloned()
                .map(|(k, v)| (k, v.into()))
                .collect();
            config.insert("tags", tags);
        }
        if !self.delay.is_zero() {
            let new = max_wire_version >= WIRE_VERSION_5_0;
            let key = if new {
                "secondaryDelaySecs"
            } else {
                "slaveDelay"
            };
            config.insert(key, self.delay.as_secs() as i64);
        }
        if let Some((horizon, (_, port))) = self.horizon.as_ref().zip(host.rsplit_once(':')) {
            let outside = if horizon.contains(':') {
                horizon.clone()
            } else {
                format!("{horizon}:{port}")
            };
            config.insert("horizons", doc! { "outside": outside });
        }
        config
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bson::{Bson, doc};

    use super::MemberSpec;

    #[test]
    fn the_configuration_matches_the_spec() {
        let spec = MemberSpec::new()
            .tag("dc", "ny")
            .tag("rack", "1")
            .priority(2.5);
        let expected = doc! {
            "_id": 3, "host": "127.0.0.1:1", "priority": 2.5, "votes": 1, "hidden": false,
            "arbiterOnly": false, "tags": { "dc": "ny", "rack": "1" },
        };
        assert_eq!(spec.config(3, "127.0.0.1:1", 17), expected);
    }

    #[test]
    fn the_delay_field_depends_on_the_server_version() {
        let spec = MemberSpec::new().delayed(Duration::from_secs(5));
        for (max_wire_version, key) in [
            (8, "slaveDelay"),
            (9, "slaveDelay"),
            (13, "secondaryDelaySecs"),
        ] {
            let config = spec.config(0, "127.0.0.1:1", max_wire_version);
            assert_eq!(config.get(key), Some(&Bson::Int64(5)), "{config}");
            assert_eq!(config.get("priority"), Some(&Bson::Double(0.0)), "{config}");
        }
    }
}
