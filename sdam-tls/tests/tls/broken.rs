//! Established connections that end with a TLS error.

use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use sdam::{Criteria, ErrorKind, ServerAddress, ServerType, Topology, error::Stage};
use sdam_sim::{
    Blueprint, MemberId,
    config::SetConfig,
    runtime::{Certificate, Sim, TlsAcceptor, TlsSession},
};
use sdam_testkit::RecordingPools;
use sdam_tls::{
    Reason,
    rustls::{self, AlertDescription},
};

/// The fault in the reply to the next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The reply arrives with one bit changed.
    BadRecord,
    /// The reply is an alert, because the server cannot decrypt the message.
    Alert,
}

/// The fault of one session. It is `None` at first.
type Shared = Arc<Mutex<Option<Fault>>>;

/// The faults of all sessions, in the order in which the sessions began.
#[derive(Clone, Debug, Default)]
struct Faults(Arc<Mutex<Vec<Shared>>>);

/// A TLS library whose sessions may have faults.
#[derive(Debug)]
struct Faulty(Arc<dyn TlsAcceptor>, Faults);

impl TlsAcceptor for Faulty {
    fn accept(&self, member: MemberId, own: &Certificate) -> io::Result<Box<dyn TlsSession>> {
        let fault = Shared::default();
        self.1.0.lock().unwrap().push(Arc::clone(&fault));
        Ok(Box::new(Session(self.0.accept(member, own)?, fault)))
    }
}

#[derive(Debug)]
struct Session(Box<dyn TlsSession>, Shared);

impl TlsSession for Session {
    fn receive(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut bytes = bytes.to_vec();
        if let (Some(Fault::Alert), Some(last)) = (*self.1.lock().unwrap(), bytes.last_mut()) {
            *last ^= 1;
        }
        self.0.receive(&bytes)
    }

    fn send(&mut self, data: &[u8]) {
        self.0.send(data);
    }

    fn outgoing(&mut self) -> Vec<u8> {
        let mut bytes = self.0.outgoing();
        if let (Some(Fault::BadRecord), Some(last)) = (*self.1.lock().unwrap(), bytes.last_mut()) {
            *last ^= 1;
        }
        bytes
    }

    fn is_handshaking(&self) -> bool {
        self.0.is_handshaking()
    }
}

// An alert and a corrupt record are network errors, like the reset of a connection (I-15).
#[test]
fn an_alert_and_a_bad_record_on_an_established_connection_are_network_errors() {
    for (fault, alert) in
        [(Fault::BadRecord, None), (Fault::Alert, Some(AlertDescription::BadRecordMac))]
    {
        let host = ServerAddress::new("a", 27017);
        let sim = Sim::new(1, &Blueprint::replica_set(SetConfig::new("rs", [host])));
        let faults = Faults::default();
        sim.tls().require();
        let library = sim.tls().acceptor().unwrap();
        sim.tls().accept_by(Faulty(library, faults.clone()));
        sim.block_on(async {
            let builder = Topology::builder(&sim.uri()).unwrap();
            let pools = RecordingPools::default();
            let topology = builder.pools(pools.clone()).start(sim.runtime()).unwrap();
            let minute = Duration::from_secs(60);
            let write = Criteria::write();
            let server = topology.select_within(&write, minute).await.unwrap();
            let mut connection = server.pool().context().establish(None).await.unwrap();
            let ping = bson::rawdoc! { "ping": 1, "$db": "admin" };
            connection.run_command(ping.as_bytes(), None).await.unwrap();
            assert_eq!(pools.count("clear"), 0);

            let last = Arc::clone(faults.0.lock().unwrap().last().unwrap());
            *last.lock().unwrap() = Some(fault);
            let error = connection.run_command(ping.as_bytes(), None).await;
            let error = error.unwrap_err();
            let found = (error.kind(), error.stage());
            assert_eq!(found, (ErrorKind::Network, Stage::Operation), "{error}");
            let cause = error.source_as::<rustls::Error>().unwrap();
            assert_eq!(Reason::of(cause), Reason::Other);
            if let Some(alert) = alert {
                assert_eq!(*cause, rustls::Error::AlertReceived(alert));
            }
            assert_eq!(pools.count("clear"), 1);
            let snapshot = topology.snapshot();
            let [now] = snapshot.description().servers() else {
                panic!("{snapshot:?}");
            };
            assert_eq!(now.server_type, ServerType::Unknown);
            drop(server);
            topology.close().await;
        });
    }
}
