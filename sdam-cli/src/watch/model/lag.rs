//! The primary's writes, against which the lag of secondaries is measured.

use std::{collections::VecDeque, time::Duration};

use sdam_core::{
    server::{ServerDescription, ServerType},
    time::Instant,
};

use super::push;

/// The time for which a secondary may lack a known write before it counts as lagging. Without this
/// grace period, secondaries would appear to lag after an election, because the new primary's first
/// write is much newer than the old primary's last one.
pub(super) const GRACE: Duration = Duration::from_secs(3);

/// The maximum number of writes to keep.
const WRITES: usize = 100;

/// The dates of the last writes that primaries reported, in increasing order, each with the time at
/// which the client learned of the write.
#[derive(Clone, Debug, Default)]
pub(super) struct Writes(VecDeque<(Instant, i64)>);

impl Writes {
    /// Adds the last write of `server`, if it is a primary.
    pub(super) fn note(&mut self, at: Instant, server: &ServerDescription) {
        let is_primary = server.server_type == ServerType::RsPrimary;
        let Some(write) = server.last_write_date.filter(|_| is_primary) else {
            return;
        };
        if self.0.back().is_none_or(|(_, last)| *last < write) {
            push(&mut self.0, WRITES, (at, write));
        }
    }

    /// Returns whether the last answer of `server` lacks a write that the client had already known
    /// for at least [`GRACE`] when the answer arrived.
    pub(super) fn is_missed_by(&self, server: &ServerDescription) -> bool {
        let own = server.last_write_date;
        let first = self.0.iter().find(|(_, write)| own < Some(*write));
        first.is_some_and(|(known, _)| server.last_update_time >= Some(*known + GRACE))
    }
}
