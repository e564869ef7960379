//! A recording that is split into numbered files of limited length, called parts.
//!
//! A replay needs all of a client's inputs from its startup onward. Therefore each part records a
//! client of its own, which starts before the client of the previous part ends.

use std::{
    cell::RefCell,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use futures::{channel::mpsc::UnboundedSender, future::join_all};
use sdam::{Runtime, Topology, transport::clock::Clock};
use sdam_core::options::Options;
use tokio::task::spawn_blocking;

use super::{
    Arguments, is_known,
    recorder::{Recorded, Recorder},
};
use crate::{failure::Failure, file_error::cannot_write};

/// The interval at which the length of the current part is checked.
const PERIOD: Duration = Duration::from_millis(500);
/// The maximum time for which the old client keeps running while the new one waits for the servers'
/// first answers.
const OVERLAP: Duration = Duration::from_secs(10);

/// The clients that record the parts.
pub(super) struct Parts {
    clock: Arc<dyn Clock>,
    limit: u64,
    notes: UnboundedSender<String>,
    /// Starts a new client, which is recorded in a new part.
    begin: Box<dyn Fn() -> Result<(Recorded, Topology), Failure>>,
    /// The current part.
    pub(super) recorder: Recorder,
    /// The running clients. The last one records the current part.
    clients: RefCell<Vec<Topology>>,
}

impl Parts {
    /// Begins the first part, for `--record` and `--record-max`. The file name of each part is that
    /// of `path` with the part's number added.
    pub(super) fn start(
        runtime: &Runtime,
        options: &Options,
        arguments: &Arguments,
        (path, limit): (&Path, u64),
        notes: &UnboundedSender<String>,
    ) -> Result<Self, Failure> {
        let (runtime, options, arguments) = (runtime.clone(), options.clone(), arguments.clone());
        let (clock, path, told) =
            (Arc::clone(&runtime.backend.clock), path.to_owned(), notes.clone());
        let begin = move || {
            let path = part(&path, last(&path) + 1);
            let client = (&options, &arguments, &*runtime.backend.clock);
            let recorded = Recorded::begin(&path, client, &told)?;
            let builder = arguments.target.builder(options.clone());
            let builder = builder.sink(Arc::clone(&recorded.sink));
            let client = builder.start(runtime.clone()).map_err(Failure::config)?;
            Ok((recorded, client))
        };
        let (recorded, client) = begin()?;
        Ok(Self {
            clock,
            limit,
            notes: notes.clone(),
            begin: Box::new(begin),
            recorder: Rc::new(RefCell::new(recorded)),
            clients: RefCell::new(vec![client]),
        })
    }

    /// Begins a new part whenever the current one exceeds the limit or cannot be written. Never
    /// returns.
    ///
    /// If a new part cannot begin, recording continues in the current one, and another attempt is
    /// made later. Only one of the completed parts is kept.
    pub(super) async fn rotate(&self) {
        let (mut previous, mut told, mut limit) = (None::<Ended>, None, self.limit);
        loop {
            self.clock.sleep_until(self.clock.now() + PERIOD).await;
            let old = self.recorder.borrow().clone();
            if old.tape.length() <= limit && !old.tape.has_stopped() {
                continue;
            }
            let (recorded, client) = match (self.begin)() {
                Ok(begun) => begun,
                Err(error) => {
                    let goes_on = if old.tape.has_stopped() {
                        "nothing is recorded"
                    } else {
                        "recording goes on"
                    };
                    let words = format!("{error}; {goes_on} in {}, trying again", old.name());
                    if told.as_ref() != Some(&words) {
                        self.tell(words.clone());
                        told = Some(words);
                    }
                    continue;
                }
            };
            told = None;
            *self.recorder.borrow_mut() = recorded.clone();
            self.clients.borrow_mut().push(client.clone());
            let known = |now: &sdam::Snapshot| is_known(now.description()).then_some(());
            // Ignore a timeout: the old part has to end even then, because its file is full.
            let _ = client.wait_for(known, OVERLAP).await;
            let ended = self.clients.borrow_mut().remove(0);
            ended.close().await;
            // The completed part must be safe on disk before an older one is removed.
            let tape = old.tape.clone();
            let _ = spawn_blocking(move || tape.sync()).await;
            let ended = Ended { path: old.path, length: old.tape.length() };
            let (kept, removed) = ended.or(previous.take(), old.tape.has_stopped());
            previous = Some(kept);
            if let Some(path) = removed.and_then(|it| it.path)
                && let Err(error) = fs::remove_file(&path)
            {
                self.tell(cannot_write(path.display(), &error));
            }
            self.tell(format!("recording goes on in {}", recorded.name()));
            // A part must not consist of a client's startup alone, so the limit is at least twice
            // the length of the startup.
            limit = self.limit.max(2 * recorded.tape.length());
        }
    }

    /// Ends the recording.
    pub(super) async fn close(&self) {
        let clients = self.clients.take();
        join_all(clients.iter().map(Topology::close)).await;
    }

    fn tell(&self, words: String) {
        // Sending fails if the user has quit.
        let _ = self.notes.unbounded_send(words);
    }
}

/// A part that has ended.
#[derive(Debug, PartialEq)]
struct Ended {
    path: Option<PathBuf>,
    length: u64,
}

impl Ended {
    /// Returns the part to keep and the one to remove. Keeps the newer one, unless it is shorter
    /// because it could not be written completely: on a full disk, a series of such truncated parts
    /// would otherwise replace the complete older one.
    fn or(self, previous: Option<Self>, is_cut: bool) -> (Self, Option<Self>) {
        match previous {
            Some(previous) if is_cut && self.length < previous.length => (previous, Some(self)),
            previous => (self, previous),
        }
    }
}

/// Returns the path of a part, such as `rec.1.jsonl` for `rec.jsonl`.
fn part(path: &Path, number: u64) -> PathBuf {
    let mut end = OsString::from(number.to_string());
    if let Some(extension) = path.extension() {
        end.push(".");
        end.push(extension);
    }
    path.with_extension(end)
}

/// Returns the highest number of the existing parts, or 0.
fn last(path: &Path) -> u64 {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let entries = fs::read_dir(folder.unwrap_or(Path::new("."))).into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| {
        let name = entry.file_name();
        let mut numbers = name.to_str()?.split('.').filter_map(|part| part.parse().ok());
        numbers.find(|number| part(path, *number).file_name() == Some(&*name))
    });
    numbers.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_was_cut_short_does_not_replace_a_longer_one() {
        let part = |length| Ended { path: None, length };
        assert_eq!(part(1).or(None, true), (part(1), None));
        assert_eq!(part(1).or(Some(part(9)), true), (part(9), Some(part(1))));
        assert_eq!(part(9).or(Some(part(1)), true), (part(9), Some(part(1))));
        assert_eq!(part(8).or(Some(part(9)), false), (part(8), Some(part(9))));
    }

    #[test]
    fn parts_are_numbered_after_all_that_exist() {
        let folder = tempfile::tempdir().unwrap();
        let check = |name: &str, expected: &str| {
            let path = folder.path().join(name);
            assert_eq!(part(&path, last(&path) + 1), folder.path().join(expected));
        };
        check("rec.jsonl", "rec.1.jsonl");
        for name in ["rec.2.jsonl", "rec.10.jsonl", "rec.x.jsonl", "rec.11.json", "other.12.jsonl"]
        {
            fs::write(folder.path().join(name), "").unwrap();
        }
        check("rec.jsonl", "rec.11.jsonl");
        check("rec", "rec.1");
        check("a.b.jsonl", "a.b.1.jsonl");
    }
}
