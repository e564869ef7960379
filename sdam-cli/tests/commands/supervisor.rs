//! Tests `export` under systemd as its supervisor, and that it reloads its targets file on SIGHUP.

use std::{fs, os::unix::net::UnixDatagram};

use rustix::process::Signal;
use sdam_sim::{Blueprint, users::User};

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

/// The folder `%d` contains only the files that the unit names, so these must include every secret
/// that the targets name.
#[test]
fn the_credentials_of_the_unit_have_the_secrets_that_the_targets_name() {
    let user = User::new("sdam", "secret");
    let server = Blueprint::standalone().user(user).serve().unwrap();
    let uri = server.uri().replace("://", "://sdam@");
    let room = Room::new();
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/systemd/sdam-export.service");
    let unit = fs::read_to_string(unit).unwrap().replace("\n#Load", "\nLoad");
    assert!(unit.contains("\nType=notify\n"), "{unit}");
    let credentials = unit.lines().filter_map(|line| line.strip_prefix("LoadCredential="));
    for (id, path) in credentials.map(|line| line.split_once(':').unwrap()) {
        room.write(
            id,
            match path {
                "/etc/sdam/targets.toml" => {
                    format!("orders = {{ uri = '{uri}', passwordFile = 'orders-password' }}\n")
                }
                "/etc/sdam/orders-password" => "secret\n".to_owned(),
                other => panic!("{other}"),
            },
        );
    }
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let start = start.replace("%d", room.path().to_str().unwrap()).replace(":9216", ":0");
    let words: Vec<_> = start.split(' ').skip(1).collect();
    let mut running = Running::start(&mut room.sdam(&words));
    running.wait_for("http://127.0.0.1:");
    running.signal(Signal::TERM);
    let ended = running.end();
    assert_eq!((ended.code, &*ended.remarks), (0, ""));
}

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
