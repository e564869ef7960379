//! Tests of the encrypted stream: data, the end of data, rejected clients and deadlines.

use std::{io, sync::Arc};

use futures::{AsyncReadExt as _, AsyncWriteExt as _, FutureExt as _, executor::block_on};
use sdam_core::error::{ErrorKind, Stage};
use sdam_tls::{
    Reason,
    rustls::{
        self,
        version::{TLS12, TLS13},
    },
};
use sdam_transport::{error, stream::ByteStream, tls::Tls};

use crate::{
    certificates::Authority,
    handshakes::{negotiate, presenting},
    server::{Waiting, Wire, serve, serve_asking, serve_clients_of, serve_with},
};

/// Sends `data` and reads the echo.
pub(crate) fn exchange(stream: &mut Box<dyn ByteStream>, data: &[u8]) {
    let echoed = async {
        stream.write_all(data).await?;
        stream.flush().await?;
        let mut echo = vec![0; data.len()];
        stream.read_exact(&mut echo).await?;
        io::Result::Ok(echo)
    };
    assert_eq!(block_on(echoed).unwrap(), data);
}

/// Sends a message and tries to read the reply. Returns the error of the read.
fn failure(stream: &mut Box<dyn ByteStream>) -> io::Error {
    let sent = async {
        stream.write_all(b"hello").await?;
        stream.flush().await?;
        stream.read(&mut [0; 16]).await
    };
    block_on(sent).unwrap_err()
}

#[test]
fn data_arrive_whole_over_every_stream_in_chunks_of_any_length() {
    let authority = Authority::new("one");
    let data: Vec<u8> = (0..200_000_u32).map(|index| index as u8).collect();
    for version in [&TLS12, &TLS13] {
        let config = serve_with(&authority.issue(&["a"]), None, &[version]);
        for chunk in [1, 700, 20_000] {
            for waiting in [Waiting::Pending, Waiting::Blocks, Waiting::Hesitates] {
                let wire = Wire { waiting, chunk, ..Wire::tls(&config) };
                let mut stream = negotiate(&authority.tls(), wire, "a").unwrap();
                exchange(&mut stream, b"hello");
                exchange(&mut stream, &data[..data.len().min(chunk * 1000)]);
            }
        }
    }
}

#[test]
fn an_end_with_or_without_notice_is_the_end_of_the_stream() {
    let authority = Authority::new("one");
    for ending in [true, false] {
        let ending = Some((5, ending));
        let wire = Wire { ending, ..Wire::tls(&serve(&authority.issue(&["a"]))) };
        let mut stream = negotiate(&authority.tls(), wire, "a").unwrap();
        exchange(&mut stream, b"hello");
        for _ in 0..2 {
            let read = stream.read(&mut [0; 16]).now_or_never().unwrap().unwrap();
            assert_eq!(read, 0);
        }
    }
}

#[test]
fn closing_sends_a_notice() {
    let authority = Authority::new("one");
    let wire = Wire::tls(&serve(&authority.issue(&["a"])));
    let seen = wire.seen();
    let mut stream = negotiate(&authority.tls(), wire, "a").unwrap();
    stream.close().now_or_never().unwrap().unwrap();
    assert!(seen.lock().unwrap().notified);
    drop(stream);
    assert_eq!(Arc::strong_count(&seen), 1, "the socket is closed");
}

/// Checks the error of a client that the server rejects after the handshake.
#[track_caller]
fn rejected(tls: &Arc<dyn Tls>, wire: Wire, reason: Option<Reason>, message: &str) {
    let mut stream = negotiate(tls, wire, "a").unwrap();
    let error = failure(&mut stream);
    let error = error::from_io(Stage::Hello, "reading", error);
    assert_eq!((error.stage(), error.message()), (Stage::Tls, message));
    let found = error.source_as::<rustls::Error>().map(Reason::of);
    assert_eq!(found, reason);
    let expected = if reason.is_some() { ErrorKind::Protocol } else { ErrorKind::Network };
    assert_eq!(error.kind(), expected);
}

#[test]
fn a_server_of_tls_1_3_that_rejects_the_client_is_named_by_the_first_message() {
    let (authority, clients) = (Authority::new("one"), Authority::new("clients"));
    let config = serve_clients_of(&authority.issue(&["a"]), &clients, &TLS13);
    let reason = Some(Reason::ClientCertificate);
    let check = |tls: &Arc<dyn Tls>, message| {
        rejected(tls, Wire::tls(&config), reason, message);
        let blocking = Wire { waiting: Waiting::Blocks, ..Wire::tls(&config) };
        rejected(tls, blocking, reason, message);
        // The alert arrives before the connection is reset.
        rejected(tls, Wire { resets: true, ..Wire::tls(&config) }, reason, message);
    };
    let message = "the server requires a client certificate; set `tlsCertificateKeyFile`";
    check(&authority.tls(), message);
    let tls = presenting(&Authority::new("other").issue(&["client"]), &authority);
    let message = "the server rejects the client's certificate, because it does not trust the \
                   authority that issued it; check `tlsCertificateKeyFile`";
    check(&tls, message);
}

#[test]
fn a_server_that_closes_the_connection_after_it_asked_for_a_certificate_is_named() {
    let (authority, clients) = (Authority::new("one"), Authority::new("clients"));
    let config = serve_asking(&authority.issue(&["a"]), &clients, &TLS13);
    let message = "the server closed the connection after the TLS handshake; it may require a \
                   client certificate: set `tlsCertificateKeyFile`";
    rejected(&authority.tls(), Wire::rejecting(&config), None, message);
    let resetting = Wire { resets: true, ..Wire::rejecting(&config) };
    rejected(&authority.tls(), resetting, None, message);
    let tls = presenting(&clients.issue(&["client"]), &authority);
    let message = "the server closed the connection after the TLS handshake; it may reject the \
                   client's certificate: check `tlsCertificateKeyFile`";
    rejected(&tls, Wire::rejecting(&config), None, message);
    let config = serve_asking(&authority.issue(&["a"]), &clients, &TLS12);
    let error = negotiate(&tls, Wire::rejecting(&config), "a").unwrap_err();
    assert_eq!(error.message(), message.replace("after", "during"));
    assert_eq!((error.kind(), error.stage()), (ErrorKind::Network, Stage::Tls));
}

#[test]
fn a_server_that_closes_the_connection_without_having_asked_is_at_its_end() {
    let authority = Authority::new("one");
    let wire = Wire::rejecting(&serve(&authority.issue(&["a"])));
    let mut stream = negotiate(&authority.tls(), wire, "a").unwrap();
    let read = stream.read(&mut [0; 16]).now_or_never().unwrap().unwrap();
    assert_eq!(read, 0);
}
