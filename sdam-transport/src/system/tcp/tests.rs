use std::net::{Ipv4Addr, TcpListener, TcpStream};

use super::*;

#[test]
fn a_tuned_socket_sends_without_delay_and_probes_an_idle_peer_unless_the_system_does_so_sooner() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let connect = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let check = |stream: &TcpStream, [idle, interval, probes]: [u64; 3]| {
        tune_tcp(stream).unwrap();
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
