//! The specification of a member.

use bson::{Document, doc};

/// The configuration of a replica set member. The default is an electable voter of priority 1.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct MemberSpec {
    pub(super) priority: f64,
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
    pub(super) fn config(&self, id: usize, host: &str) -> Document {
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
