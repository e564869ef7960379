//! Tests recordings that are split into parts (`watch --record-max`).

use std::{fs, thread};

use rustix::process::Signal;
use sdam_cli::recording::Recording;
use sdam_core::event::EventKind;
use sdam_sim::serve::ReplicaSet;

use super::program::{Ended, Room, Running};

/// A client that records into `folder`, and the set that it watches.
struct Recorded {
    set: ReplicaSet,
    room: Room,
    running: Option<Running>,
    changes: usize,
}

impl Recorded {
    fn start() -> Self {
        Self::start_with("64K", "")
    }

    /// Runs the shell commands `before`, and then starts the program in the same shell.
    fn start_with(limit: &str, before: &str) -> Self {
        let (set, room) = (ReplicaSet::start(3).unwrap(), Room::new());
        fs::create_dir(room.path().join("folder")).unwrap();
        let uri = set.uri();
        let command = format!(
            "{before} exec sdam watch --record folder/rec.jsonl --record-max {limit} '{uri}'"
        );
        let running = Some(Running::start(room.command("bash").args(["-c", &command])));
        Self { set, room, running, changes: 0 }
    }

    /// Changes the set, so that there is something to record, until the program prints `told`.
    fn until(&mut self, told: &str) {
        loop {
            self.changes += 1;
            let rack = self.changes.to_string();
            let tags = [("rack".into(), rack.into())].into();
            self.set.reconfig(move |config| config.members[0].tags = tags).unwrap();
            loop {
                let line = self.running.as_mut().unwrap().line();
                assert!(!line.is_empty(), "no {told}");
                if line.contains(told) {
                    return;
                }
                if line.contains(" ~ ") {
                    break;
                }
            }
        }
    }

    fn end(&mut self, signal: Signal) -> Ended {
        let running = self.running.take().unwrap();
        running.signal(signal);
        running.end()
    }

    /// Checks that a part can be replayed without the other parts, and that it describes the set.
    /// Returns the part as a recording.
    fn replay(&self, number: usize) -> Recording {
        let name = format!("folder/rec.{number}.jsonl");
        let ended = self.room.run(&["replay", "--trace", &name]);
        assert_eq!(ended.code, 0, "{name}: {ended:?}");
        let recording = Recording::open(&self.room.path().join(name)).unwrap();
        assert_eq!(recording.defect, None);
        let has_primary = recording.events.iter().any(|event| match &event.kind {
            EventKind::TopologyDescriptionChanged { new, .. } => new.primary().is_some(),
            _ => false,
        });
        assert!(has_primary, "{number}");
        recording
    }

    fn parts(&self) -> Vec<String> {
        let entries = fs::read_dir(self.room.path().join("folder")).unwrap();
        let mut names: Vec<_> =
            entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

#[test]
fn each_of_the_last_two_parts_is_a_recording_even_if_the_program_is_killed() {
    let mut test = Recorded::start();
    for number in 2..=4 {
        test.until(&format!("recording goes on in folder/rec.{number}.jsonl"));
    }
    while test.parts() != ["rec.3.jsonl", "rec.4.jsonl"] {
        thread::yield_now();
    }
    let ended = test.end(Signal::KILL);
    assert_eq!(ended.code, 128 + 9, "{ended:?}");
    let [third, fourth] = [3, 4].map(|number| test.replay(number));
    let wall = |part: &Recording, at| part.wall(at).unwrap();
    assert!(wall(&third, third.end()) > wall(&fourth, fourth.start()), "there is no gap");
    assert!(wall(&third, third.start()) < wall(&fourth, fourth.start()));
    let length = fs::metadata(test.room.path().join("folder/rec.3.jsonl")).unwrap().len();
    assert!(length > 64 << 10, "{length}");

    // If the program is started again, it keeps the existing files.
    let words = ["watch", "--record", "folder/rec.jsonl", "--record-max", "1G", test.set.uri()];
    let mut next = Running::start(&mut test.room.sdam(&words));
    next.wait_for("was Unknown");
    next.signal(Signal::INT);
    assert_eq!(next.end().code, 0);
    assert_eq!(test.parts(), ["rec.3.jsonl", "rec.4.jsonl", "rec.5.jsonl"]);
    test.replay(5);
}

#[test]
fn a_part_that_cannot_be_begun_is_told_and_the_last_one_goes_on() {
    let mut test = Recorded::start();
    test.until(" ~ ");
    let [folder, away] = ["folder", "away"].map(|name| test.room.path().join(name));
    fs::rename(&folder, &away).unwrap();
    test.until("--record folder/rec.1.jsonl: its folder does not exist; create");
    let length = || fs::metadata(away.join("rec.1.jsonl")).unwrap().len();
    let before = length();
    while length() == before {
        test.until(" ~ ");
    }
    fs::rename(&away, &folder).unwrap();
    test.until("recording goes on in folder/rec.2.jsonl");
    let ended = test.end(Signal::INT);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(test.parts(), ["rec.1.jsonl", "rec.2.jsonl"]);
    for number in 1..=2 {
        test.replay(number);
    }
}

#[test]
fn a_part_that_cannot_be_written_is_told_and_another_one_is_begun() {
    // The limit on the size of files makes further writes fail, as on a full disk.
    let mut test = Recorded::start_with("1M", "trap '' XFSZ; ulimit -f 96;");
    test.until("the recording has stopped at ");
    test.until("recording goes on in folder/rec.2.jsonl");
    let ended = test.end(Signal::INT);
    assert_eq!(ended.code, 0, "{ended:?}");
    let first = Recording::open(&test.room.path().join("folder/rec.1.jsonl")).unwrap();
    assert!(first.defect.unwrap().starts_with("the end of line "));
    test.replay(2);
}
