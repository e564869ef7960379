//! Tests sockets that systemd hands over to a process.

use std::{
    fs,
    net::{TcpListener, TcpStream},
    os::fd::{AsFd, AsRawFd},
    process::Stdio,
};

use rustix::{
    io::{FdFlags, fcntl_setfd},
    process::Signal,
};
use sdam_live::Client;

use super::program::{Ended, Room, Running, TIMEOUT};

/// Starts a proxy as systemd does: with the sockets as descriptors 3 and 4, and with `variables`,
/// in which `$$` stands for the process id of the proxy.
fn activate(room: &Room, variables: &str, sockets: [&dyn AsFd; 2], arguments: &str) -> Running {
    let [first, second] = sockets.map(|socket| socket.as_fd().try_clone_to_owned().unwrap());
    // Clear the close-on-exec flag, so that the shell inherits the descriptor.
    fcntl_setfd(&second, FdFlags::empty()).unwrap();
    let script = format!(
        "{variables} exec sdam proxy --demo --listen 127.0.0.1:0 {arguments} 4<&{} 3<&0",
        second.as_raw_fd()
    );
    Running::start(room.command("bash").args(["-c", &script]).stdin(Stdio::from(first)))
}

#[test]
fn sockets_that_are_handed_over_serve_one_process_after_another() {
    const VARIABLES: &str = "LISTEN_PID=$$ LISTEN_FDS=2";
    let room = Room::new();
    let sockets = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let addresses = sockets.each_ref().map(|socket| socket.local_addr().unwrap());
    let start = || {
        let sockets = sockets.each_ref().map(|socket| socket as &dyn AsFd);
        let mut running = activate(&room, VARIABLES, sockets, "--read secondary");
        let line = running.line();
        let uri = |index: usize| format!("mongodb://{}/?directConnection=true ", addresses[index]);
        assert!(line.starts_with(&(uri(0) + &uri(1))), "{line}");
        running
    };
    let connect = |index: usize| Client::connect_with_timeout(addresses[index], TIMEOUT).unwrap();
    let old = start();
    assert!(connect(0).hello().unwrap().get_bool("isWritablePrimary").unwrap());
    assert!(connect(1).hello().unwrap().get_bool("secondary").unwrap());
    old.signal(Signal::TERM);
    assert_eq!(old.end().code, 0);
    // The connection is not refused although no proxy is running, because the listening socket
    // stays open.
    let mut waiting = connect(0);
    let new = start();
    assert!(waiting.hello().unwrap().get_bool("isWritablePrimary").unwrap());

    // Both proxies serve until one is stopped. That one first finishes an exchange in progress.
    let next = start();
    new.signal(Signal::TERM);
    assert_eq!(new.end().code, 0);
    connect(0).hello().unwrap();
    next.signal(Signal::TERM);
    assert_eq!(next.end().code, 0);
}

#[test]
fn wrong_sockets_are_named_with_the_remedy_and_those_of_others_are_left() {
    let room = Room::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let file = fs::File::open(env!("CARGO_MANIFEST_DIR")).unwrap();
    let refused = |variables: &str, socket: &dyn AsFd, words: [&str; 2]| {
        let ended = activate(&room, variables, [socket, &listener], "").end();
        let Ended { code, remarks, .. } = &ended;
        assert_eq!(*code, 3, "{variables}: {remarks}");
        assert!(words.iter().all(|word| remarks.contains(word)), "{variables}: {remarks}");
    };
    refused("LISTEN_PID=x LISTEN_FDS=1", &listener, ["LISTEN_PID=x", "it needs a process id"]);
    refused("LISTEN_PID=$$ LISTEN_FDS=x", &listener, ["LISTEN_FDS=x", "ListenStream="]);
    refused("LISTEN_PID=$$ LISTEN_FDS=2", &listener, ["LISTEN_FDS=2", "each of --listen"]);
    refused("LISTEN_PID=$$ LISTEN_FDS=1", &stream, ["it does not listen", "Accept=no"]);
    refused("LISTEN_PID=$$ LISTEN_FDS=1", &file, ["not a socket", "ListenStream=IP:PORT"]);
    for variables in ["LISTEN_PID=1 LISTEN_FDS=1", "LISTEN_PID=$$ LISTEN_FDS=0"] {
        let mut running = activate(&room, variables, [&listener, &listener], "");
        let own = listener.local_addr().unwrap().to_string();
        assert!(!running.line().contains(&own), "{variables}");
        running.signal(Signal::TERM);
        assert_eq!(running.end().code, 0);
    }
}
