//! Tests that `sdam export` reloads its targets file on SIGHUP.

use rustix::process::Signal;
use sdam_sim::Blueprint;

use super::program::{Room, Running};

#[test]
fn the_targets_are_read_at_once_when_a_signal_asks_and_the_outcome_is_told() {
    let server = Blueprint::standalone().serve().unwrap();
    let room = Room::new();
    let valid = format!("alone = '{}'\n", server.uri());
    room.write("targets.toml", &valid);
    let command = "exec sdam export --targets targets.toml --listen 127.0.0.1:0 2>&1";
    let mut running = Running::start(room.command("sh").args(["-c", command]));
    // The program handles the signal once it has printed its first line.
    running.wait_for("http://");
    running.signal(Signal::HUP);
    running.wait_for("--targets targets.toml was read: 0 added, 0 removed, 1 unchanged");
    room.write("targets.toml", format!("{valid}b = 1\n"));
    running.signal(Signal::HUP);
    running.wait_for("warning: --targets targets.toml: line 2: b: the value is of type integer");
    running.signal(Signal::TERM);
    assert_eq!(running.end().code, 0);
}
