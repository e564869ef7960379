#[cfg(target_os = "linux")]
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use futures::FutureExt as _;

use super::*;

#[test]
fn seeds_differ() {
    assert_ne!(entropy(), entropy());
}

#[test]
fn the_wall_clock_is_that_of_the_system() {
    let before = SystemTime::now();
    let shown = wall();
    let elapsed = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis();
    let millis = u128::from(shown.as_millis());
    assert!(millis <= elapsed, "{millis} is after {elapsed}");
    let before = before.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
    assert!(millis >= before, "{millis} is before {before}");
}

#[test]
fn dropped_and_ready_timers_are_removed_and_no_thread_waits_for_them() {
    let clock = ThreadClock::new(Epoch::begin());
    let mut far = clock.sleep_until(Instant::MAX);
    assert!((&mut far).now_or_never().is_none());
    assert!((&mut far).now_or_never().is_none());
    assert_eq!(clock.timers.state().waiting.len(), 1);
    let mut other = clock.sleep_until(Instant::MAX);
    assert!((&mut other).now_or_never().is_none());
    assert_eq!(clock.timers.state().waiting.len(), 2, "of the same deadline");
    assert!(clock.timers.state().watched);
    drop((far, other));
    // The thread ends because no timer is pending. The clock is then the only owner of the
    // timers.
    let mut state = clock.timers.state();
    assert!(state.waiting.is_empty());
    while state.watched {
        let changed = clock.timers.changed.wait(state);
        state = changed.unwrap_or_else(PoisonError::into_inner);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_tuned_socket_sends_without_delay_and_probes_an_idle_peer_unless_the_system_does_so_sooner() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let connect = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let check = |stream: &TcpStream, [idle, interval, probes]: [u64; 3]| {
        tune_tcp(stream, None).unwrap();
        assert!(stream.nodelay().unwrap());
        let socket = SockRef::from(stream);
        assert!(socket.keepalive().unwrap());
        let seconds = |time: io::Result<Duration>| time.unwrap().as_secs();
        assert_eq!(seconds(socket.tcp_keepalive_time()), idle);
        assert_eq!(seconds(socket.tcp_keepalive_interval()), interval);
        assert_eq!(u64::from(socket.tcp_keepalive_retries().unwrap()), probes);
    };
    let set = |stream: &TcpStream, [idle, interval, probes]: [u64; 3]| {
        let keep_alive = TcpKeepalive::new()
            .with_time(Duration::from_secs(idle))
            .with_interval(Duration::from_secs(interval))
            .with_retries(probes as u32);
        SockRef::from(stream).set_tcp_keepalive(&keep_alive).unwrap();
    };
    let stream = connect();
    set(&stream, [7200, 75, 10]);
    check(&stream, [120, 10, 9]);
    let stream = connect();
    set(&stream, [60, 75, 3]);
    check(&stream, [60, 10, 3]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_user_timeout_is_rounded_to_milliseconds_that_the_system_accepts() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let check = |user_timeout: Option<Duration>, expected: Option<Duration>| {
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        tune_tcp(&stream, user_timeout).unwrap();
        assert_eq!(SockRef::from(&stream).tcp_user_timeout().unwrap(), expected);
    };
    check(None, None);
    check(Some(Duration::from_micros(30_000_900)), Some(Duration::from_secs(30)));
    check(Some(Duration::MAX), Some(Duration::from_millis(i32::MAX as u64)));
}
