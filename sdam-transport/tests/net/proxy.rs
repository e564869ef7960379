//! Connections through a proxy.

use sdam_core::options::ProxyOptions;

use super::*;
use sdam_transport::pipe::{PipeEnd, Piped, piped};

fn through(dial: impl Dial, clock: &ManualClock) -> Arc<dyn Transport> {
    let layers = layers::layers(|layers| layers.proxy = Some(ProxyOptions::new("bastion", 1080)));
    let direct = NetTransport::new(dial, Arc::new(clock.clone()));
    direct.with_layers(layers).unwrap()
}

/// Connects to `target` through a proxy that closes every connection, and returns the error.
fn refused(dial: &FakeDial, target: &str) -> Error {
    let transport = through(dial.clone(), &ManualClock::default());
    let target = ServerAddress::parse(target).unwrap();
    let connected = transport.connect(&target, None).now_or_never().unwrap();
    connected.unwrap_err().without_context()
}

#[test]
fn the_proxy_is_looked_up_and_dialled_and_the_member_is_not() {
    let dial = dial(&[("bastion", &["::9", "9.9.9.9"])], &[("[::9]:1080", REFUSED)]);
    let error = refused(&dial, "mongo-0");
    assert_eq!(dialled(&dial), "[::9]:1080 9.9.9.9:1080");
    assert_eq!((error.kind(), error.stage()), (ErrorKind::Network, Stage::Proxy));
    assert_eq!(
        error.message(),
        "no connection to mongo-0:27017 through the SOCKS5 proxy bastion:1080: the proxy closed \
         the connection during the greeting"
    );
}

#[test]
fn a_unix_domain_socket_is_dialled_past_the_proxy() {
    let dial = dial(&[], &[]);
    let transport = through(dial.clone(), &ManualClock::default());
    let target = ServerAddress::unix("/run/mongodb-27017.sock");
    let connected = transport.connect(&target, None).now_or_never().unwrap();
    assert!(connected.is_ok());
    assert_eq!(dialled(&dial), target.as_str());
}

#[test]
fn a_proxy_that_cannot_be_reached_is_named_and_no_sign_of_overload() {
    let check = |dial: &FakeDial, cause: &str| {
        let error = refused(dial, "mongo-0");
        assert_eq!((error.kind(), error.stage()), (ErrorKind::Network, Stage::Proxy));
        let expected = format!(
            "no connection to mongo-0:27017 through the SOCKS5 proxy bastion:1080: the proxy \
             cannot be reached: {cause}"
        );
        assert_eq!(error.message(), expected);
        let generation = sdam_core::ids::Generation::from_u64(1);
        let report = sdam_core::report::ErrorReport::new(generation, error);
        assert_eq!(report.error.labels().len(), 0);
    };
    check(&dial(&[], &[]), "the host name has no address");
    check(
        &dial(&[("bastion", &["9.9.9.9"])], &[("9.9.9.9:1080", REFUSED)]),
        "could not connect: 9.9.9.9:1080: connection refused",
    );
}

/// A dialer whose peer takes bytes and never answers.
#[derive(Debug, Default)]
struct Silent {
    ends: Mutex<Vec<PipeEnd>>,
}

#[async_trait]
impl Dial for Silent {
    type Stream = Piped;

    async fn dial(&self, _: &DialTarget, _: DialOptions) -> io::Result<Piped> {
        let (stream, end) = piped();
        self.ends.lock().unwrap().push(end);
        Ok(stream)
    }

    async fn lookup_host(&self, _: &str) -> io::Result<Vec<SocketAddr>> {
        Ok(vec![([9, 9, 9, 9], 0).into()])
    }
}

#[test]
fn a_handshake_that_is_not_answered_ends_at_the_deadline() {
    let clock = ManualClock::default();
    let transport = through(Silent::default(), &clock);
    let target = ServerAddress::parse("mongo-0").unwrap();
    let mut connect = transport.connect(&target, Some(Instant::from_millis(1000)));
    assert!(connect.as_mut().now_or_never().is_none());
    clock.advance(Duration::from_secs(1));
    let error = connect.now_or_never().unwrap().unwrap_err();
    assert_eq!((error.kind(), error.stage()), (ErrorKind::Timeout, Stage::Proxy));
    assert_eq!(
        error.message(),
        "no connection to mongo-0:27017 through the SOCKS5 proxy bastion:1080: the proxy did not \
         answer in time"
    );
}
