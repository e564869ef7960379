//! Tests that DNS look-ups that get no answer end after --timeout and on Ctrl-C.

use std::{net::UdpSocket, time::Instant};

use rustix::process::Signal;

use crate::program::{Room, Running, TIMEOUT};

const URI: &str = "mongodb+srv://cluster.sdam.example";

#[test]
fn a_silent_dns_server_delays_no_more_than_the_time_limit() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let dns = silent.local_addr().unwrap().to_string();
    let room = Room::new();
    for words in ["watch --once", "explain", "doctor"] {
        let begun = Instant::now();
        let limits = ["--timeout", "1", "--dns", &dns, URI];
        let words: Vec<_> = words.split(' ').chain(limits).collect();
        let ended = room.run(&words);
        // Without --timeout, a look-up takes ten seconds.
        assert!(begun.elapsed().as_secs() < 8, "{words:?}: {ended:?}");
        let is_doctor = words.contains(&"doctor");
        assert_eq!(ended.code, if is_doctor { 2 } else { 4 }, "{ended:?}");
        assert!(is_doctor || ended.remarks.contains("raise --timeout"), "{ended:?}");
    }
}

#[test]
fn a_look_up_is_interrupted_like_what_follows_it() {
    let room = Room::new();
    for (first, code) in [("--plain", 0), ("--once", 130)] {
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        silent.set_read_timeout(Some(TIMEOUT)).unwrap();
        let dns = silent.local_addr().unwrap().to_string();
        let running =
            Running::start(&mut room.interruptible(&["watch", first, "--dns", &dns, URI]));
        silent.recv_from(&mut [0; 512]).unwrap();
        running.signal(Signal::INT);
        let ended = running.end();
        assert_eq!(ended.code, code, "{ended:?}");
    }
}
