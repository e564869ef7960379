//! Tests of the layers between a server's address and the messages of a connection.

use super::*;
use sdam_transport::tls::Tls;

/// Translates every member to the same address.
#[derive(Debug)]
struct To(&'static str);

impl Translate for To {
    fn translate(&self, _: &ServerAddress) -> ServerAddress {
        ServerAddress::parse(self.0).unwrap()
    }
}

/// A stand-in for TLS, which records the servers with which it negotiates.
#[derive(Debug)]
pub(super) struct FakeTls {
    servers: Mutex<Vec<String>>,
    outcome: Outcome,
}

#[async_trait]
impl Tls for FakeTls {
    async fn negotiate(
        &self,
        stream: Box<dyn ByteStream>,
        server: &ServerAddress,
    ) -> Result<Box<dyn ByteStream>, Error> {
        self.servers.lock().unwrap().push(server.to_string());
        match self.outcome {
            Outcome::Silent => future::pending().await,
            Outcome::Fail(_) => Err(Error::protocol(Stage::Tls, "expired")),
            _ => Ok(stream),
        }
    }
}

pub(super) fn tls(outcome: Outcome) -> Arc<FakeTls> {
    Arc::new(FakeTls { servers: Mutex::default(), outcome })
}

/// Connects through `layers` with a deadline of 1000 ms. If necessary, advances time past the
/// deadline.
fn connect_through(dial: &FakeDial, layers: Layers, target: &str) -> Result<(), Error> {
    let clock = &dial.clock;
    let transport = NetTransport::new(dial.clone(), Arc::new(clock.clone()));
    let transport = transport.with_layers(layers).unwrap();
    let target = ServerAddress::parse(target).unwrap();
    let deadline = Instant::from_millis(1000);
    let mut connect = transport.connect(&target, Some(deadline));
    if let Some(outcome) = connect.as_mut().now_or_never() {
        return outcome.map(drop);
    }
    clock.advance(deadline.since(clock.now()));
    connect.now_or_never().unwrap().map(drop)
}

/// Creates layers without any, and sets those that `set` sets.
pub(super) fn layers(set: impl FnOnce(&mut Layers)) -> Layers {
    let mut layers = Layers::default();
    set(&mut layers);
    layers
}

fn translated(to: &'static str) -> Layers {
    layers(|layers| layers.translate = Some(Arc::new(To(to))))
}

pub(super) fn encrypted(tls: &Arc<FakeTls>) -> Layers {
    layers(|layers| layers.tls = Some(Arc::clone(tls) as _))
}

#[test]
fn a_translated_member_is_dialled_elsewhere_and_tls_checks_its_own_name() {
    let dial = dial(&[("bastion", &["10.0.0.9"])], &[]);
    let tls = tls(Outcome::Open);
    let mut layers = translated("bastion:30001");
    layers.tls = encrypted(&tls).tls;
    connect_through(&dial, layers, "mongo-0:27017").unwrap();
    assert_eq!(dialled(&dial), "10.0.0.9:30001");
    assert_eq!(*tls.servers.lock().unwrap(), ["mongo-0:27017"]);
}

#[test]
fn an_error_of_a_translated_member_names_both_addresses() {
    let dial = dial(&[], &[("10.0.0.9:1", REFUSED)]);
    let error = connect_through(&dial, translated("10.0.0.9:1"), "mongo-0:27017").unwrap_err();
    assert_eq!(
        format!("{error:#}"),
        "mongo-0:27017: network error at connect: dialling 10.0.0.9:1 for it: could not \
         connect: 10.0.0.9:1: connection refused"
    );
}

#[test]
fn a_handshake_that_fails_or_stalls_is_an_error_at_stage_tls() {
    let check = |outcome, kind, message: &str| {
        let layers = encrypted(&tls(outcome));
        let error = connect_through(&dial(&[], &[]), layers, "10.0.0.1:1").unwrap_err();
        assert_eq!((error.kind(), error.stage()), (kind, Stage::Tls));
        assert!(error.message().starts_with(message), "{error}");
    };
    check(REFUSED, ErrorKind::Protocol, "expired");
    let message = "the server did not finish the TLS handshake in time";
    check(Outcome::Silent, ErrorKind::Timeout, message);
}

#[test]
fn added_layers_replace_only_layers_of_their_kind() {
    let transport = NetTransport::new(dial(&[], &[]), Arc::new(ManualClock::default()));
    assert_eq!(transport.guards(), Guards::NONE);
    let (first, second) = (tls(Outcome::Open), tls(Outcome::Open));
    let transport = transport.with_layers(encrypted(&first)).unwrap();
    let transport = transport.with_layers(translated("10.0.0.9:1")).unwrap();
    assert_eq!(transport.guards(), Guards::NONE.with_tls());
    let transport = transport.with_layers(encrypted(&second)).unwrap();
    let target = ServerAddress::parse("mongo-0:27017").unwrap();
    let connect = transport.connect(&target, None).now_or_never();
    connect.unwrap().unwrap();
    assert!(first.servers.lock().unwrap().is_empty());
    assert_eq!(second.servers.lock().unwrap().len(), 1);
}

#[test]
fn every_socket_has_the_user_timeout_of_the_last_layer_that_sets_one() {
    let dial = dial(&[("a", &["::1", "10.0.0.9"])], &[("[::1]:27017", REFUSED)]);
    let clock = Arc::new(ManualClock::default());
    let set = |seconds| layers(|layers| layers.user_timeout = Some(Duration::from_secs(seconds)));
    let transport = NetTransport::new(dial.clone(), clock).with_layers(set(7)).unwrap();
    let transport = transport.with_layers(set(5)).unwrap();
    let transport = transport.with_layers(translated("a")).unwrap();
    let target = ServerAddress::new("b", 27017);
    transport.connect(&target, None).now_or_never().unwrap().unwrap();
    let dialled = dial.dialled.lock().unwrap();
    let seconds: Vec<_> = dialled.iter().map(|dialled| dialled.options.user_timeout).collect();
    assert_eq!(seconds, [Some(Duration::from_secs(5)); 2]);
}
