//! Counts heartbeats and operations under way, so that the end of the queue can wait for them.

use sdam_core::event::EventName as Name;

use crate::sink::Interest;

const CONNECTIONS: Interest = Interest::of(&[Name::ConnectionCreated, Name::ConnectionClosed]);
const CHECK_OUTS: Interest = Interest::of(&[
    Name::ConnectionCheckOutStarted,
    Name::ConnectionCheckedOut,
    Name::ConnectionCheckOutFailed,
]);

/// The numbers of heartbeats and operations under way for which the sink receives both start and
/// end.
///
/// Shed ones count, too: an end event does not say whether its start was shed, so otherwise the
/// count would reach zero too early.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    heartbeats: usize,
    connections: usize,
    check_outs: usize,
    commands: usize,
}

impl UnderWay {
    /// Counts an event with this name for a sink with this interest.
    pub(super) fn count(&mut self, name: Name, interest: Interest) {
        let (count, whole) = match name {
            Name::ServerHeartbeatStarted
            | Name::ServerHeartbeatSucceeded
            | Name::ServerHeartbeatFailed => (&mut self.heartbeats, Interest::HEARTBEATS),
            Name::ConnectionCreated | Name::ConnectionClosed => {
                (&mut self.connections, CONNECTIONS)
            }
            Name::ConnectionCheckOutStarted
            | Name::ConnectionCheckedOut
            | Name::ConnectionCheckOutFailed => (&mut self.check_outs, CHECK_OUTS),
            Name::CommandStarted | Name::CommandSucceeded | Name::CommandFailed => {
                (&mut self.commands, Interest::COMMANDS)
            }
            _ => return,
        };
        if !interest.contains_all(whole) {
            return;
        }
        let begins = matches!(
            name,
            Name::ServerHeartbeatStarted
                | Name::ConnectionCreated
                | Name::ConnectionCheckOutStarted
                | Name::CommandStarted
        );
        *count = if begins { *count + 1 } else { count.saturating_sub(1) };
    }

    pub(super) fn end_heartbeats(&mut self) {
        self.heartbeats = 0;
    }

    pub(super) fn total(&self) -> usize {
        self.heartbeats + self.connections + self.check_outs + self.commands
    }
}
