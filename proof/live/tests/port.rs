//! Tests of reserved ports. They are a separate program that starts no other processes, because a
//! forked child would keep the sockets of all tests open until it executes its program.
#![cfg(target_os = "linux")]

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};

use sdam_live::Port;
use socket2::{Domain, Socket, Type};

/// Binds the port without sharing it, as a reservation does.
fn take(address: SocketAddr) -> io::Result<()> {
    Socket::new(Domain::IPV4, Type::STREAM, None)?.bind(&address.into())
}

#[test]
fn only_one_owner_has_a_port_and_its_server_can_be_restarted() {
    let port = Port::reserve().unwrap();
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    client.connect(port.address()).unwrap();
    for _ in 0..3 {
        let refused = TcpStream::connect(port.address()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        client.send(b"anyone?").unwrap();
        let refused = client.recv(&mut [0; 8]).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        let taken = |error: io::Error| error.kind() == io::ErrorKind::AddrInUse;
        assert!(UdpSocket::bind(port.address()).is_err_and(taken));
        assert!(take(port.address()).is_err_and(taken));

        let listener = TcpListener::bind(port.address()).unwrap();
        let names = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        names.set_reuse_address(true).unwrap();
        names.bind(&port.address().into()).unwrap();
        assert!(take(port.address()).is_err_and(taken));
        let _client = TcpStream::connect(port.address()).unwrap();
        let _server = listener.accept().unwrap();
        client.send(b"anyone?").unwrap();
        assert_eq!(UdpSocket::from(names).recv(&mut [0; 8]).unwrap(), 7);
    }
}
