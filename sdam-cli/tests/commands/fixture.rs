//! The deployments and files that the tested command lines use.

use std::{fmt::Write as _, fs, sync::LazyLock};

use rustix::process::Signal;
use sdam_sim::{Blueprint, Served};

use crate::program::{Room, Running};

/// The files that each test folder contains.
pub(crate) static FILES: LazyLock<Vec<(&str, Vec<u8>)>> = LazyLock::new(|| {
    let mut files = vec![("few.jsonl", record(3)), ("many.jsonl", record(160))];
    let texts = [
        ("commands", "help\n".repeat(40)),
        ("empty", String::new()),
        ("bad.toml", "# Shop\nx = 1\n".to_owned()),
        ("wrong.toml", "orders = 'localhost:1'\n".to_owned()),
        ("scenario", "1s kill primary\n2s nonsense\n".to_owned()),
    ];
    files.extend(texts.map(|(name, text)| (name, text.into_bytes())));
    files.push(("garbage", b"\xff\x00\x9f\n".repeat(100)));
    files
});

/// A simulated set of three members that never changes.
static SET: LazyLock<Served> = LazyLock::new(|| Blueprint::replica_set(3).serve().unwrap());

/// Creates a folder with [`FILES`].
pub(crate) fn room() -> Room {
    let room = Room::new();
    for (name, content) in &*FILES {
        room.write(name, content);
    }
    room
}

/// Returns the first member of the simulated set, as `127.0.0.1:PORT`.
pub(crate) fn seed() -> &'static str {
    let hosts = SET.uri().strip_prefix("mongodb://").unwrap();
    hosts.split(',').next().unwrap()
}

/// Splits `text` into arguments at spaces, and replaces placeholders. `given` is the tested value.
pub(crate) fn arguments(name: &str, text: &str, given: &str) -> Vec<String> {
    let hosts = || {
        let hosts = (1..=250).fold(String::new(), |mut hosts, port| {
            // Writing to a string cannot fail.
            let _ = write!(hosts, ",127.0.0.1:{port}");
            hosts
        });
        format!("mongodb://{}", hosts.trim_start_matches(','))
    };
    let word = |word: &str| match word {
        "URI" => format!("mongodb://{}/?replicaSet=rs0", seed()),
        "HOSTS" => hosts(),
        "FILE" | "SILENT" => given.to_owned(),
        word => word.to_owned(),
    };
    let words = [name].into_iter().chain(text.split_whitespace());
    words.map(word).collect()
}

/// Records a client while it discovers a set.
fn record(members: u16) -> Vec<u8> {
    let set = Blueprint::replica_set(members).serve().unwrap();
    let room = Room::new();
    let words = ["watch", "--record", "new.jsonl", set.uri()];
    let mut client = Running::start(&mut room.sdam(&words));
    for _ in 0..members {
        client.wait_for("was Unknown");
    }
    client.signal(Signal::INT);
    assert_eq!(client.end().code, 0);
    fs::read(room.path().join("new.jsonl")).unwrap()
}
