//! The settings of a full screen, and the data that it shows.

use std::{iter::Peekable, vec};

use futures::channel::mpsc::UnboundedReceiver;
use sdam_core::{options::Options, time::Instant};
use sdam_events::{
    channel::EventStream,
    record::{Note, Origin},
};

use super::{player::Player, recorder::Recorder};
use crate::terminal::Palette;

/// The source of the events and of the current time.
#[cfg_attr(not(feature = "tui"), expect(dead_code, reason = "only the full screen reads it"))]
pub(super) enum Feed {
    Live { events: EventStream, clock: Box<dyn Fn() -> Instant> },
    Replay(Player),
}

/// The settings of a screen, and the data that it shows.
#[cfg_attr(not(feature = "tui"), expect(dead_code, reason = "only the full screen reads it"))]
pub(super) struct Setup {
    pub(super) feed: Feed,
    /// The options of the client that produces the events.
    pub(super) options: Options,
    /// The origin from which the wall-clock times of the events are calculated.
    pub(super) wall: Origin,
    /// The source of the events: `LIVE`, `DEMO`, or a replay with its speed.
    pub(super) source: String,
    /// The recording that is being written.
    pub(super) recorder: Option<Recorder>,
    /// The marks in a recording that is replayed, oldest first.
    pub(super) marks: Peekable<vec::IntoIter<Note>>,
    /// The steps of the demonstration.
    pub(super) notes: UnboundedReceiver<String>,
    /// True if output is restricted to ASCII characters.
    pub(super) ascii: bool,
    pub(super) palette: Palette,
}
