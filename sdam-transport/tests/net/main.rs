//! Tests of connecting: look-ups, attempts, layers and proxies.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::{
    collections::BTreeMap,
    io::{self, ErrorKind::ConnectionRefused},
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use futures::{AsyncRead, AsyncWrite, FutureExt as _, future, io::Cursor};
use sdam_core::{
    address::ServerAddress,
    error::{Error, ErrorKind, Stage},
    time::Instant,
};

use sdam_testkit::ManualClock;
use sdam_transport::{
    async_trait,
    clock::Clock,
    connect::Transport,
    dial::{Dial, DialOptions, DialTarget},
    layers::{Guards, Layers, Translate},
    net::*,
    stream::ByteStream,
};

mod layers;
mod proxy;

/// A stream that accepts what is written, and ends at once.
#[derive(Debug, Default)]
struct Ended(Cursor<Vec<u8>>);

impl ByteStream for Ended {}

impl AsyncRead for Ended {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_read(context, bytes)
    }
}

impl AsyncWrite for Ended {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// The result of an attempt or a look-up.
#[derive(Clone, Copy, Debug)]
enum Outcome {
    Open,
    Fail(io::ErrorKind),
    Silent,
}

/// A dialer with fixed results for names and addresses.
#[derive(Clone, Debug, Default)]
struct FakeDial {
    names: BTreeMap<&'static str, Vec<&'static str>>,
    fates: BTreeMap<&'static str, Outcome>,
    blocking: Option<ManualClock>,
    dialled: Arc<Mutex<Vec<Dialled>>>,
}

/// A dialled target, and the options of the attempt.
type Dialled = (String, DialOptions);

#[async_trait]
impl Dial for FakeDial {
    type Stream = Ended;

    async fn dial(&self, target: &DialTarget, options: DialOptions) -> io::Result<Self::Stream> {
        let target = target.to_string();
        let fate = self.fates.get(&*target).copied();
        self.dialled.lock().unwrap().push((target, options));
        match (fate.unwrap_or(Outcome::Open), &self.blocking) {
            (Outcome::Open, _) => Ok(Ended::default()),
            (Outcome::Fail(kind), _) => Err(kind.into()),
            (Outcome::Silent, None) => future::pending().await,
            (Outcome::Silent, Some(clock)) => {
                let left = options.deadline.unwrap().since(clock.now());
                clock.advance(left);
                Err(io::ErrorKind::TimedOut.into())
            }
        }
    }

    async fn lookup_host(&self, host: &str) -> io::Result<Vec<SocketAddr>> {
        match self.fates.get(host).copied() {
            Some(Outcome::Fail(kind)) => return Err(kind.into()),
            Some(Outcome::Silent) => future::pending().await,
            Some(Outcome::Open) | None => {}
        }
        let addresses = self.names.get(host).into_iter().flatten();
        let with_port = |address: &&str| match address.parse() {
            Ok(ip) => SocketAddr::new(ip, 0),
            Err(_) => format!("[{address}]:0").parse().unwrap(),
        };
        Ok(addresses.map(with_port).collect())
    }

    fn blocks(&self) -> bool {
        self.blocking.is_some()
    }
}

fn dial(names: &[(&'static str, &[&'static str])], fates: &[(&'static str, Outcome)]) -> FakeDial {
    FakeDial {
        names: names.iter().map(|(name, ips)| (*name, ips.to_vec())).collect(),
        fates: fates.iter().copied().collect(),
        ..FakeDial::default()
    }
}

/// Connects to `target` with a deadline of 1000 ms. Advances time in steps until the attempt ends.
fn connect(dial: &FakeDial, target: &str) -> Result<(), Error> {
    let clock = dial.blocking.clone().unwrap_or_default();
    let transport = NetTransport::new(dial.clone(), Arc::new(clock.clone()));
    let target = ServerAddress::parse(target).unwrap();
    let mut connect = transport.connect(&target, Some(Instant::from_millis(1000)));
    loop {
        if let Some(outcome) = connect.as_mut().now_or_never() {
            return outcome.map(drop).map_err(Error::without_context);
        }
        assert!(clock.now() < Instant::from_millis(1000), "the deadline has no effect");
        clock.advance(Duration::from_millis(50));
    }
}

fn dialled(dial: &FakeDial) -> String {
    let dialled = dial.dialled.lock().unwrap();
    let targets: Vec<_> = dialled.iter().map(|(target, _)| &**target).collect();
    targets.join(" ")
}

#[track_caller]
fn fails(dial: &FakeDial, target: &str, kind: ErrorKind, stage: Stage, message: &str) {
    let error = connect(dial, target).unwrap_err();
    assert_eq!((error.kind(), error.stage()), (kind, stage));
    assert_eq!(error.message(), message);
}

#[test]
fn literal_addresses_and_paths_are_not_looked_up() {
    let check = |target: &str, expected: &str| {
        let dial = dial(&[], &[]);
        connect(&dial, target).unwrap();
        assert_eq!(dialled(&dial), expected);
    };
    check("127.0.0.1:5", "127.0.0.1:5");
    check("[::1]:5", "[::1]:5");
    check("/run/MongoDB.sock", "/run/MongoDB.sock");
}

#[test]
fn families_take_turns_until_one_answers() {
    let dial = dial(
        &[("a", &["::1", "::2", "127.0.0.1"])],
        &[("[::1]:27017", Outcome::Silent), ("127.0.0.1:27017", Outcome::Fail(ConnectionRefused))],
    );
    connect(&dial, "a").unwrap();
    assert_eq!(dialled(&dial), "[::1]:27017 127.0.0.1:27017 [::2]:27017");
}

#[test]
fn the_zone_of_an_address_is_kept() {
    let dial = dial(&[("fe80::1%Lo0", &["fe80::1%3"]), ("printer", &["fe80::1%4"])], &[]);
    connect(&dial, "[FE80::1%Lo0]:5").unwrap();
    connect(&dial, "printer").unwrap();
    assert_eq!(dialled(&dial), "[fe80::1%3]:5 [fe80::1%4]:27017");
}

#[test]
fn look_up_errors_have_stage_dns() {
    let dial = dial(
        &[],
        &[("broken", Outcome::Fail(io::ErrorKind::NotFound)), ("silent", Outcome::Silent)],
    );
    let message = "the host name could not be looked up: entity not found";
    fails(&dial, "broken", ErrorKind::Network, Stage::Dns, message);
    let message = "the host name look-up timed out: the deadline has passed";
    fails(&dial, "silent", ErrorKind::Timeout, Stage::Dns, message);
    fails(&dial, "empty", ErrorKind::Network, Stage::Dns, "the host name has no address");
    assert_eq!(dialled(&dial), "");
}

#[test]
fn a_failed_connect_reports_the_outcome_for_every_address() {
    let check = |first, second, kind, message| {
        let fates = [("1.1.1.1:27017", first), ("2.2.2.2:27017", second)];
        let dial = dial(&[("a", &["1.1.1.1", "2.2.2.2"])], &fates);
        fails(&dial, "a", kind, Stage::Connect, message);
    };
    let (network, timeout) = (ErrorKind::Network, ErrorKind::Timeout);
    let refused = Outcome::Fail(ConnectionRefused);
    let message = "could not connect: 1.1.1.1:27017: connection refused; \
                   2.2.2.2:27017: connection refused";
    check(refused, refused, network, message);
    let message = "connecting timed out: 2.2.2.2:27017: connection refused; \
                   1.1.1.1:27017: no reply";
    check(Outcome::Silent, refused, timeout, message);
    // The error counts as a timeout only if the system timed out at every address.
    let expired = Outcome::Fail(io::ErrorKind::TimedOut);
    let message = "could not connect: 1.1.1.1:27017: timed out; 2.2.2.2:27017: connection refused";
    check(expired, refused, network, message);
    let message = "connecting timed out: 1.1.1.1:27017: timed out; 2.2.2.2:27017: timed out";
    check(expired, expired, timeout, message);
}

#[test]
fn blocking_attempts_share_the_time_that_is_left() {
    let names: &[(_, &[_])] = &[("a", &["1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4"])];
    let fates = [
        ("1.1.1.1:27017", Outcome::Silent),
        ("2.2.2.2:27017", Outcome::Fail(ConnectionRefused)),
        ("3.3.3.3:27017", Outcome::Silent),
    ];
    let dial = FakeDial { blocking: Some(ManualClock::default()), ..dial(names, &fates) };
    connect(&dial, "a").unwrap();
    let deadlines: Vec<_> =
        dial.dialled.lock().unwrap().iter().map(|(_, options)| options.deadline).collect();
    // The first attempt gets a quarter of 1000 ms. The second gets a third of the remaining 750 ms,
    // but its address refuses at once. The third therefore gets half of 750 ms, and the last one
    // the rest.
    let expected = [250, 500, 625, 1000].map(|millis| Some(Instant::from_millis(millis)));
    assert_eq!(deadlines, expected);
}
