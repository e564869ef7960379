//! Tests programs that run under systemd as their supervisor.

use std::{fs, os::unix::net::UnixDatagram, path::Path};

use rustix::process::Signal;

use super::program::{Room, Running, TIMEOUT};

#[cfg(target_os = "linux")]
#[test]
fn a_supervisor_knows_when_clients_are_served_and_when_the_program_stops() {
    for program in ["export", "proxy"] {
        let room = Room::new();
        let path = room.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        let message = || {
            let mut bytes = [0; 256];
            let length = socket.recv(&mut bytes).unwrap();
            String::from_utf8(bytes[..length].to_vec()).unwrap()
        };
        let mut command = room.sdam(&[program, "--demo", "--listen", "127.0.0.1:0"]);
        let running = Running::start(command.env("NOTIFY_SOCKET", &path));
        assert_eq!(message().trim_end(), "READY=1", "{program}");
        running.signal(Signal::TERM);
        assert_eq!(message().trim_end(), "STOPPING=1", "{program}");
        assert_eq!(running.end().code, 0, "{program}");
    }
}

#[test]
fn the_units_start_the_program_with_arguments_that_it_has() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/systemd");
    for name in ["sdam-export.service", "sdam-proxy.service"] {
        let unit = fs::read_to_string(folder.join(name)).unwrap();
        assert!(unit.contains("\nType=notify\n"), "{name}");
        let value = |unit: &str, key: &str| {
            let value = unit.lines().find_map(|line| line.strip_prefix(key).map(str::to_owned));
            value.unwrap_or_else(|| panic!("no {key} in {name}"))
        };
        let start = value(&unit, "ExecStart=");
        let matches = sdam_cli::cli::command().try_get_matches_from(start.split(' '));
        let matches = matches.unwrap_or_else(|error| panic!("{name}: {error}"));
        let subcommand = matches.subcommand_name().unwrap();
        assert_eq!(name, format!("sdam-{subcommand}.service"));
        if subcommand == "proxy" {
            let socket = fs::read_to_string(folder.join(value(&unit, "Sockets="))).unwrap();
            let listen = format!("--listen {}", value(&socket, "ListenStream="));
            assert!(start.contains(&listen), "{start}");
        }
    }
}
