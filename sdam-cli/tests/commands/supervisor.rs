//! Tests `export` under systemd as its supervisor.

use std::{fs, os::unix::net::UnixDatagram};

use rustix::process::Signal;

use super::program::{Room, Running, TIMEOUT};

#[cfg(target_os = "linux")]
#[test]
fn a_supervisor_knows_when_clients_are_served_and_when_the_program_stops() {
    let room = Room::new();
    let path = room.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    let message = || {
        let mut bytes = [0; 256];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    };
    let mut command = room.sdam(&["export", "--demo", "--listen", "127.0.0.1:0"]);
    let running = Running::start(command.env("NOTIFY_SOCKET", &path));
    assert_eq!(message().trim_end(), "READY=1");
    running.signal(Signal::TERM);
    assert_eq!(message().trim_end(), "STOPPING=1");
    assert_eq!(running.end().code, 0);
}

#[test]
fn the_unit_starts_the_program_with_arguments_that_it_has() {
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/systemd/sdam-export.service");
    let unit = fs::read_to_string(unit).unwrap();
    assert!(unit.contains("\nType=notify\n"), "{unit}");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let matches = sdam_cli::cli::command().try_get_matches_from(start.split(' ')).unwrap();
    assert_eq!(matches.subcommand_name(), Some("export"));
}
