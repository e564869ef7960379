//! Tests of connecting: look-ups, attempts, layers and proxies.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::{
    collections::BTreeMap,
    io::{self, ErrorKind::ConnectionRefused},
    mem,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{FutureExt as _, future, io::Cursor};
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
    stream::{ByteStream, NonBlocking},
};

mod layers;
mod proxy;
mod race;

/// The result of an attempt or a look-up.
#[derive(Clone, Copy, Debug)]
enum Outcome {
    Open,
    Fail(io::ErrorKind),
    Silent,
    /// After this number of milliseconds, the attempt succeeds.
    OpenAfter(u64),
    /// After this number of milliseconds, the attempt is refused.
    FailAfter(u64),
}

const REFUSED: Outcome = Outcome::Fail(ConnectionRefused);

/// A dialer with fixed results for names and addresses.
#[derive(Clone, Debug, Default)]
struct FakeDial {
    names: BTreeMap<&'static str, Vec<&'static str>>,
    fates: BTreeMap<String, Outcome>,
    clock: ManualClock,
    blocks: bool,
    dialled: Arc<Mutex<Vec<Dialled>>>,
    /// The targets of attempts that were dropped before their end.
    dropped: Arc<Mutex<Vec<String>>>,
}

/// An attempt to connect.
#[derive(Clone, Debug)]
struct Dialled {
    target: String,
    options: DialOptions,
    at: Instant,
}

/// A stream that accepts all writes, and whose reads return the end of the stream at once.
type Ended = NonBlocking<Cursor<Vec<u8>>>;

/// Records that an attempt was dropped, unless the guard is forgotten first.
struct Guard<'d>(&'d FakeDial, String);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.dropped.lock().unwrap().push(mem::take(&mut self.1));
    }
}

#[async_trait]
impl Dial for FakeDial {
    type Stream = Ended;

    async fn dial(&self, target: &DialTarget, options: DialOptions) -> io::Result<Self::Stream> {
        let (target, at) = (target.to_string(), self.clock.now());
        let fate = self.fates.get(&*target).copied();
        self.dialled.lock().unwrap().push(Dialled { target: target.clone(), options, at });
        let guard = Guard(self, target);
        let (after, kind) = match fate.unwrap_or(Outcome::Open) {
            Outcome::Open => (0, None),
            Outcome::Fail(kind) => (0, Some(kind)),
            Outcome::Silent if self.blocks => {
                self.clock.advance(options.deadline.unwrap().since(at));
                (0, Some(io::ErrorKind::TimedOut))
            }
            Outcome::Silent => future::pending().await,
            Outcome::OpenAfter(after) => (after, None),
            Outcome::FailAfter(after) => (after, Some(ConnectionRefused)),
        };
        self.clock.sleep_until(at + Duration::from_millis(after)).await;
        mem::forget(guard);
        kind.map_or_else(|| Ok(NonBlocking(Cursor::default())), |kind| Err(kind.into()))
    }

    async fn lookup_host(&self, host: &str) -> io::Result<Vec<SocketAddr>> {
        match self.fates.get(host).copied() {
            Some(Outcome::Fail(kind)) => return Err(kind.into()),
            Some(Outcome::Silent) => future::pending().await,
            _ => {}
        }
        let addresses = self.names.get(host).into_iter().flatten();
        let with_port = |address: &&str| match address.parse() {
            Ok(ip) => SocketAddr::new(ip, 0),
            Err(_) => format!("[{address}]:0").parse().unwrap(),
        };
        Ok(addresses.map(with_port).collect())
    }

    fn blocks(&self) -> bool {
        self.blocks
    }
}

fn dial(names: &[(&'static str, &[&'static str])], fates: &[(&'static str, Outcome)]) -> FakeDial {
    FakeDial {
        names: names.iter().map(|(name, ips)| (*name, ips.to_vec())).collect(),
        fates: fates.iter().map(|(name, fate)| ((*name).to_owned(), *fate)).collect(),
        ..FakeDial::default()
    }
}

/// Connects to `target` with a deadline of 1000 ms. Advances time in steps until the attempt ends.
fn connect(dial: &FakeDial, target: &str) -> Result<(), Error> {
    let clock = &dial.clock;
    let transport = NetTransport::new(dial.clone(), Arc::new(clock.clone()));
    let target = ServerAddress::parse(target).unwrap();
    let mut connect = transport.connect(&target, Some(Instant::from_millis(1000)));
    loop {
        if let Some(outcome) = connect.as_mut().now_or_never() {
            return outcome.map(drop).map_err(Error::without_context);
        }
        assert!(clock.now() < Instant::from_millis(1000), "the deadline has no effect");
        clock.advance(Duration::from_millis(10));
    }
}

fn dialled(dial: &FakeDial) -> String {
    let dialled = dial.dialled.lock().unwrap();
    let targets: Vec<_> = dialled.iter().map(|dialled| &*dialled.target).collect();
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
    let message = "could not connect: 1.1.1.1:27017: connection refused; \
                   2.2.2.2:27017: connection refused";
    check(REFUSED, REFUSED, network, message);
    let message = "connecting timed out: 2.2.2.2:27017: connection refused; \
                   1.1.1.1:27017: no reply";
    check(Outcome::Silent, REFUSED, timeout, message);
    // The error counts as a timeout only if the system timed out at every address.
    let expired = Outcome::Fail(io::ErrorKind::TimedOut);
    let message = "could not connect: 1.1.1.1:27017: timed out; 2.2.2.2:27017: connection refused";
    check(expired, REFUSED, network, message);
    let message = "connecting timed out: 1.1.1.1:27017: timed out; 2.2.2.2:27017: timed out";
    check(expired, expired, timeout, message);
}

#[test]
fn blocking_attempts_share_the_time_that_is_left() {
    let names: &[(_, &[_])] = &[("a", &["1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4"])];
    let fates = [
        ("1.1.1.1:27017", Outcome::Silent),
        ("2.2.2.2:27017", REFUSED),
        ("3.3.3.3:27017", Outcome::Silent),
    ];
    let dial = FakeDial { blocks: true, ..dial(names, &fates) };
    connect(&dial, "a").unwrap();
    let deadlines: Vec<_> =
        dial.dialled.lock().unwrap().iter().map(|dialled| dialled.options.deadline).collect();
    // The first attempt gets a quarter of 1000 ms. The second gets a third of the remaining 750 ms,
    // but its address refuses at once. The third attempt therefore gets half of 750 ms, and the
    // last attempt gets the rest.
    let expected = [250, 500, 625, 1000].map(|millis| Some(Instant::from_millis(millis)));
    assert_eq!(deadlines, expected);
}
