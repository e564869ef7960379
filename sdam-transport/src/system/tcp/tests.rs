use std::{
    io::Write as _,
    iter,
    net::{Ipv4Addr, TcpListener, TcpStream},
};

use super::*;

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

#[test]
fn a_write_ends_if_the_peer_leaves_no_space_for_the_user_timeout() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (_unread, _) = listener.accept().unwrap();
    tune_tcp(&stream, Some(Duration::from_millis(100))).unwrap();
    let error = iter::repeat_with(|| stream.write(&[0; 8 << 10])).find_map(Result::err).unwrap();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
}
