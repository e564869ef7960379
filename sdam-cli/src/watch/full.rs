//! The full screen.
//!
//! Events, keys and signals change the model and the state of the screen; a frame depends only on
//! these two. Monitoring runs on another thread, so a slow terminal does not delay it.

mod canvas;
mod frame;
mod keys;
mod state;
mod terminal;
#[cfg(test)]
mod tests;

use std::{
    env,
    future::Future,
    io::{self, BufWriter, Stdout},
    path::PathBuf,
    pin::pin,
    thread,
    time::Duration,
};

use futures::{
    FutureExt, StreamExt,
    channel::mpsc::{self, UnboundedReceiver, UnboundedSender},
    select_biased,
    stream::FusedStream,
};
use ratatui::backend::CrosstermBackend;
use sdam_core::{address::ServerAddress, event::Event, time::UnixTime};
use sdam_transport::system::wall;
use tokio::time::{self, sleep_until};

use self::{
    canvas::{Canvas, Glyphs, Painter, bytes},
    frame::{Scene, ordered},
    state::{Action, State},
    terminal::{Signal, Terminal},
};
use super::{Setup, model::Model, tape::Recorded};
use crate::{exit::Exit, terminal::Tone, time::Walls};

/// The interval between frames while nothing happens.
const IDLE: Duration = Duration::from_millis(250);
/// The interval between frames while the stopwatch runs.
const RUNNING: Duration = Duration::from_millis(100);
/// The minimum interval between frames while many events arrive.
const BUSY: Duration = Duration::from_millis(50);
/// The maximum time for which events are processed before the keys are checked.
const SLICE: Duration = Duration::from_millis(20);

/// Shows a full screen until the user quits, `until` completes, or a signal ends the program.
///
/// # Errors
///
/// If the terminal fails. The terminal is restored in any case.
pub(super) async fn run(setup: Setup, until: impl Future<Output = ()>) -> io::Result<Exit> {
    terminal::guard();
    let signals = terminal::signals();
    let keys = keys::read(io::stdin())?;
    let terminal = Terminal::enter()?;
    let screen = Screen::new(setup);
    let end = screen.run(&terminal, signals, keys, until).await;
    drop(terminal);
    match end {
        // This error means that the terminal is gone.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Exit::SUCCESS),
        end => end,
    }
}

/// The step that follows the processing of an input.
enum Next {
    /// Draw at the next opportunity.
    Later,
    /// Draw now.
    Now,
    End(Exit),
}

struct Screen {
    setup: Setup,
    model: Model,
    walls: Walls,
    state: State,
    /// The note that was shown last.
    note: Option<String>,
    /// The channel for the results of saving the recording.
    saved: (UnboundedSender<String>, UnboundedReceiver<String>),
    glyphs: Glyphs,
    painter: Painter<CrosstermBackend<BufWriter<Stdout>>>,
}

impl Screen {
    fn new(setup: Setup) -> Self {
        let options = setup.started.topology.options();
        Self {
            model: Model::new(options),
            walls: Walls::default(),
            state: State::new(options.read_preference.clone()),
            setup,
            note: None,
            saved: mpsc::unbounded(),
            glyphs: Glyphs::detect(|name| env::var(name).ok()),
            painter: Painter::new(CrosstermBackend::new(BufWriter::new(io::stdout()))),
        }
    }

    async fn run(
        mut self,
        terminal: &Terminal,
        mut signals: impl FusedStream<Item = Signal> + Unpin,
        mut keys: UnboundedReceiver<keys::Key>,
        until: impl Future<Output = ()>,
    ) -> io::Result<Exit> {
        let mut until = pin!(until.fuse());
        let mut next = Next::Now;
        let mut drawn = time::Instant::now();
        loop {
            let due = match next {
                Next::End(exit) => return Ok(exit),
                Next::Later if drawn.elapsed() < BUSY => drawn + BUSY,
                Next::Now | Next::Later => {
                    self.draw(terminal)?;
                    drawn = time::Instant::now();
                    drawn + self.interval()
                }
            };
            next = select_biased! {
                signal = signals.select_next_some() => self.signal(terminal, signal)?,
                () = until => Next::End(Exit::SUCCESS),
                key = keys.next() => match key {
                    Some(key) => self.press(terminal, key)?,
                    None => Next::End(Exit::SUCCESS),
                },
                event = self.setup.started.events.select_next_some() => self.observe(&event),
                note = self.setup.notes.select_next_some() => self.note(note),
                words = self.saved.1.select_next_some() => self.say(words),
                () = pin!(sleep_until(due).fuse()) => Next::Now,
            };
        }
    }

    /// Returns the time until the next frame if nothing happens before then.
    fn interval(&self) -> Duration {
        let is_running = self.model.stopwatch.current.is_some();
        if is_running && self.state.frozen.is_none() { RUNNING } else { IDLE }
    }

    fn observe(&mut self, event: &Event) -> Next {
        let begun = time::Instant::now();
        self.take_in(event);
        while begun.elapsed() < SLICE
            && let Some(event) = self.setup.started.events.try_next()
        {
            self.take_in(&event);
        }
        Next::Later
    }

    fn take_in(&mut self, event: &Event) {
        self.model.observe(event);
        if let Some(time) = event.time {
            self.walls.note(event.at, time);
        }
    }

    /// Shows a step of the demonstration.
    fn note(&mut self, words: String) -> Next {
        self.model.note("demo", Tone::Strong, &words);
        self.note = Some(words);
        Next::Now
    }

    fn say(&mut self, words: String) -> Next {
        self.state.message = Some(words);
        Next::Now
    }

    fn signal(&mut self, terminal: &Terminal, signal: Signal) -> io::Result<Next> {
        match signal {
            Signal::End(code) => return Ok(Next::End(Exit::signalled(code))),
            Signal::Suspend => return self.suspend(terminal),
            Signal::Continue => {
                terminal.resume()?;
                self.painter.forget();
            }
            // Redraw even if the terminal has its old size again: its contents may have changed.
            Signal::Resize => self.painter.forget(),
        }
        Ok(Next::Now)
    }

    fn suspend(&mut self, terminal: &Terminal) -> io::Result<Next> {
        terminal.suspend();
        terminal::stop()?;
        terminal.resume()?;
        self.painter.forget();
        Ok(Next::Now)
    }

    fn press(&mut self, terminal: &Terminal, key: keys::Key) -> io::Result<Next> {
        let shown: Vec<ServerAddress> = ordered(self.shown(), &self.state)
            .iter()
            .map(|server| server.description.address.clone())
            .collect();
        match self.state.press(key, &shown, &self.model) {
            Action::None => {}
            Action::Quit => return Ok(Next::End(Exit::SUCCESS)),
            Action::Suspend => return self.suspend(terminal),
            Action::Redraw => self.painter.forget(),
            Action::Save => return Ok(self.save()),
        }
        Ok(Next::Now)
    }

    /// Returns the frozen state while the view is frozen, and the current state otherwise.
    fn shown(&self) -> &Model {
        self.state.frozen.as_deref().unwrap_or(&self.model)
    }

    /// Saves the recording on another thread, because it may be long.
    fn save(&mut self) -> Next {
        let Some(Recorded { tape, path, .. }) = self.setup.started.recorded.clone() else {
            return self.say("nothing is recorded".to_owned());
        };
        if let Some(path) = path {
            return self.say(format!("everything is recorded in {}", path.display()));
        }
        let path = recording_name(wall());
        let sender = self.saved.0.clone();
        let next = self.say(format!("saving {}", path.display()));
        let save = move || {
            let words = match tape.save(&path) {
                Ok(length) => format!("saved {} ({})", path.display(), bytes(length)),
                Err(error) => format!("cannot save {}: {error}", path.display()),
            };
            // Sending fails if the screen has been closed in the meantime.
            let _ = sender.unbounded_send(words);
        };
        match thread::Builder::new().name("save".to_owned()).spawn(save) {
            Ok(_) => next,
            Err(error) => self.say(format!("cannot save: {error}")),
        }
    }

    fn draw(&mut self, terminal: &Terminal) -> io::Result<()> {
        let clock = &self.setup.started.clock;
        self.walls.note(clock.now(), clock.wall());
        self.model.advance(clock.now());
        for panic in terminal.panics() {
            self.model.note("watch", Tone::Bad, &panic);
        }
        let recording = match &self.setup.started.recorded {
            None => String::new(),
            Some(recorded) if recorded.tape.has_stopped() => "REC stopped".to_owned(),
            Some(recorded) => format!("REC {}", bytes(recorded.tape.length())),
        };
        let scene = Scene {
            model: self.state.frozen.as_deref().unwrap_or(&self.model),
            state: &self.state,
            walls: &self.walls,
            source: self.setup.source,
            recording: &recording,
            note: self.note.as_deref(),
        };
        let (glyphs, palette) = (self.glyphs, self.setup.palette);
        self.painter.paint(|buffer| {
            let mut canvas = Canvas::new(buffer, glyphs, palette);
            frame::draw(&mut canvas, &scene)
        })?;
        Ok(())
    }
}

/// Returns the name of a new recording in the current folder.
fn recording_name(now: UnixTime) -> PathBuf {
    let time = now.to_string().replace(['-', ':'], "");
    let seconds = time.split('.').next().unwrap_or_default();
    format!("sdam-{seconds}Z.jsonl").into()
}
