//! Passes the read preference to the selected server (Server Selection: "Passing read preference to
//! mongos and load balancers").
//!
//! The form depends on the opcode of the connection: OP_MSG carries `$readPreference` as an
//! argument of the command; OP_QUERY has the flag SecondaryOk and, for mongos, a query modifier.

use alloc::vec::Vec;
use core::time::Duration;

use sdam_core::{
    document::{DocumentWriter, MalformedDocument},
    read_preference::{ReadMode, ReadPreference, TagSet},
    server::ServerType,
    topology::TopologyType,
};

/// The framing of commands on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Opcode {
    /// OP_MSG, for every server since wire version 6.
    Msg,
    /// OP_QUERY, for older servers.
    Query,
}

/// The additions to a command that pass the read preference to the server.
///
/// The default adds nothing, which is correct for writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Additions<'p> {
    /// True to set the flag SecondaryOk of OP_QUERY.
    pub secondary_ok: bool,
    /// The `$readPreference` to send, if any.
    pub read_preference: Option<ReadPreferenceDocument<'p>>,
}

/// The contents of `$readPreference`.
#[doc(alias = "$readPreference")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadPreferenceDocument<'p> {
    /// `mode`.
    pub mode: ReadMode,
    /// `tags`; omitted if empty.
    pub tags: &'p [TagSet],
    /// `maxStalenessSeconds`; omitted unless positive.
    pub max_staleness: Option<Duration>,
    /// `hedge: { enabled: ... }`.
    pub hedge: Option<bool>,
}

impl<'p> Additions<'p> {
    /// Returns the additions to a read on a server of this type.
    ///
    /// `preference` is the operation's own preference or the configured one; `None` means mode
    /// primary.
    pub fn for_read(
        topology_type: TopologyType,
        server_type: ServerType,
        preference: Option<&'p ReadPreference>,
        opcode: Opcode,
    ) -> Self {
        let preference = preference.filter(|preference| preference.mode != ReadMode::Primary);
        let document = preference.map(ReadPreferenceDocument::new);
        let routes = matches!(server_type, ServerType::Mongos | ServerType::LoadBalancer);
        let is_single = topology_type == TopologyType::Single;
        let (secondary_ok, read_preference) = match (opcode, document) {
            // Standalone servers may reject a read preference.
            (Opcode::Msg, _) if server_type == ServerType::Standalone => (false, None),
            // With a direct connection, the single member must serve the read regardless of its
            // type.
            (Opcode::Msg, None) if is_single && !routes => {
                (false, Some(ReadPreferenceDocument::bare(ReadMode::PrimaryPreferred)))
            }
            (Opcode::Msg, document) => (false, document),
            (Opcode::Query, document) if routes => {
                (document.is_some(), document.filter(|own| !own.is_implied_by_secondary_ok()))
            }
            (Opcode::Query, document) => (is_single || document.is_some(), None),
        };
        Self { secondary_ok, read_preference }
    }

    /// Returns the additions to a user's command sent as OP_MSG to a server of this type (Run
    /// Command: "ReadPreference").
    ///
    /// Only an explicit preference with a mode other than primary is sent. The command itself is
    /// neither inspected nor otherwise changed.
    pub fn for_run_command(server_type: ServerType, preference: &'p ReadPreference) -> Self {
        let sent = preference.mode != ReadMode::Primary && server_type != ServerType::Standalone;
        Self {
            secondary_ok: false,
            read_preference: sent.then(|| ReadPreferenceDocument::new(preference)),
        }
    }
}

impl<'p> ReadPreferenceDocument<'p> {
    /// Returns the contents for `preference`. Mode primary is sent without any other field. Tag
    /// sets that are all empty and a staleness limit of zero are omitted.
    pub(crate) fn new(preference: &'p ReadPreference) -> Self {
        if preference.mode == ReadMode::Primary {
            return Self::bare(ReadMode::Primary);
        }
        let tagged = !preference.tag_sets.iter().all(TagSet::is_empty);
        Self {
            mode: preference.mode,
            tags: if tagged { &preference.tag_sets } else { &[] },
            max_staleness: preference.max_staleness.filter(|limit| !limit.is_zero()),
            hedge: preference.hedge,
        }
    }

    fn bare(mode: ReadMode) -> Self {
        Self { mode, tags: &[], max_staleness: None, hedge: None }
    }

    /// Returns whether the flag SecondaryOk alone tells a mongos to use this read preference.
    fn is_implied_by_secondary_ok(&self) -> bool {
        *self == Self::bare(ReadMode::SecondaryPreferred)
    }

    fn write(&self, document: &mut DocumentWriter) {
        document.text("mode", self.mode.as_str());
        if !self.tags.is_empty() {
            document.documents("tags", self.tags, |document, tags| {
                for (name, value) in tags.iter() {
                    document.text(name, value);
                }
            });
        }
        if let Some(limit) = self.max_staleness {
            let seconds = i64::try_from(limit.as_secs()).unwrap_or(i64::MAX);
            match i32::try_from(seconds) {
                Ok(seconds) => document.int32("maxStalenessSeconds", seconds),
                Err(_) => document.int64("maxStalenessSeconds", seconds),
            }
        }
        if let Some(enabled) = self.hedge {
            document.document("hedge", |hedge| hedge.boolean("enabled", enabled));
        }
    }

    /// Appends `$readPreference` as the last field of the command, which is the body of an OP_MSG.
    ///
    /// # Errors
    ///
    /// If `command` is not framed as a BSON document; its fields are not checked.
    pub fn append_to(&self, command: &[u8]) -> Result<Vec<u8>, MalformedDocument> {
        let mut command = DocumentWriter::extending(command)?;
        command.document("$readPreference", |document| self.write(document));
        Ok(command.finish())
    }

    /// Adds `$readPreference` as a modifier to the query of an OP_QUERY.
    ///
    /// A query without modifiers is wrapped in `$query`. A query whose first field is `$query`
    /// already has modifiers, and gets one more.
    ///
    /// # Errors
    ///
    /// The errors of [`append_to`](Self::append_to).
    pub fn modify_query(&self, query: &[u8]) -> Result<Vec<u8>, MalformedDocument> {
        // A document begins with its length and the type of its first field.
        let first_key = query.get(5..).unwrap_or_default();
        if first_key.starts_with(b"$query\0") {
            return self.append_to(query);
        }
        let mut modified = DocumentWriter::new();
        modified.encoded_document("$query", query)?;
        modified.document("$readPreference", |document| self.write(document));
        Ok(modified.finish())
    }
}

#[cfg(test)]
mod tests;
