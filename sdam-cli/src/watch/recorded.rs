//! Shows recordings instead of a deployment.

use std::{
    future::Future,
    io::{self, Write},
    path::Path,
    pin::pin,
    time::UNIX_EPOCH,
};

use futures::{FutureExt, channel::mpsc, select_biased};
use sdam_core::{
    deployment::Input,
    event::{Event, EventKind},
};
use sdam_events::record::Origin;

use super::{
    Arguments, full,
    player::{Player, Speed},
    setup::{Feed, Setup},
    view::View,
};
use crate::{console::Console, exit::Exit, failure::Failure, recording::Recording};

/// Shows the recording in the file `path` until its end, or on the full screen until the user
/// quits.
pub(super) async fn run<O: Write, R: Write>(
    path: &Path,
    arguments: &Arguments,
    mut console: Console<O, R>,
    interrupt: impl Future<Output = ()>,
) -> io::Result<Exit> {
    let recording = match Recording::open(path) {
        Ok(recording) => recording,
        Err(error) => return Failure::config(error).report(&mut console.remarks),
    };
    if let Some(defect) = &recording.defect {
        let name = &recording.name;
        writeln!(console.remarks, "warning: {name}: {defect}")?;
    }
    let start = recording.start();
    // An old recording has no wall-clock times, so show its times relative to its start.
    let wall = Origin::at(start, recording.wall(start).unwrap_or(UNIX_EPOCH));
    let mut events = recording.events;
    // Omit the events caused by closing the topology, which does not change the deployment.
    let is_end =
        |event: &Event| matches!(&event.kind, EventKind::Input(own) if own.input == Input::Close);
    events.truncate(events.iter().position(is_end).unwrap_or(events.len()));
    let mut player = Player::new(events, arguments.speed);
    let marks = recording.notes.into_iter().map(|(_, note)| note);
    let mut marks = marks.collect::<Vec<_>>().into_iter().peekable();
    if arguments.wants_screen() {
        let source = match arguments.speed {
            Speed::Times(times) => format!("REPLAY x{times}"),
            Speed::Max => "REPLAY".to_owned(),
        };
        let setup = Setup {
            feed: Feed::Replay(player),
            options: recording.options,
            wall,
            source,
            recorder: None,
            marks,
            notes: mpsc::unbounded().1,
            ascii: arguments.ascii,
            palette: console.palette,
        };
        return full::run(setup, interrupt).await;
    }
    let mut view = View::new(console, arguments.json, &recording.options);
    view.wall = Some(wall);
    let play = async {
        while let Some(event) = player.next().await {
            while let Some(mark) = marks.next_if(|mark| mark.at <= event.at) {
                view.mark(mark.at, &mark.note)?;
            }
            view.event(&event)?;
        }
        Ok(Exit::SUCCESS)
    };
    let interrupted = interrupt.then(|()| async { Ok(Exit::SUCCESS) });
    select_biased! {
        exit = pin!(interrupted.fuse()) => exit,
        exit = pin!(play.fuse()) => exit,
    }
}
