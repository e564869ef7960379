//! Changes to a set's configuration.

use bson::{Document, doc};

use super::ReplicaSet;
use crate::error::Error;

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
