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
#[derive(Debug, Default)]
pub(super) struct FakeTls {
    servers: Mutex<Vec<String>>,
}

#[async_trait]
impl Tls for FakeTls {
    async fn negotiate(
        &self,
        stream: Box<dyn ByteStream>,
        server: &ServerAddress,
    ) -> Result<Box<dyn ByteStream>, Error> {
        self.servers.lock().unwrap().push(server.to_string());
        Ok(stream)
    }
}

/// Returns the default layers as changed by `set`.
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
fn an_error_of_a_translated_member_names_both_addresses() {
    let dial = dial(&[], &[("10.0.0.9:1", REFUSED)]);
    let transport = NetTransport::new(dial.clone(), Arc::new(dial.clock.clone()));
    let transport = transport.with_layers(translated("10.0.0.9:1")).unwrap();
    let target = ServerAddress::new("mongo-0", 27017);
    let error = transport.connect(&target, None).now_or_never().unwrap().unwrap_err();
    assert_eq!(
        format!("{error:#}"),
        "mongo-0:27017: network error at connect: dialling 10.0.0.9:1 for it: could not \
         connect: 10.0.0.9:1: connection refused"
    );
}

#[test]
fn added_layers_replace_only_layers_of_their_kind() {
    let transport = NetTransport::new(dial(&[], &[]), Arc::new(ManualClock::default()));
    assert_eq!(transport.guards(), Guards::NONE);
    let [first, second] = [(); 2].map(|()| Arc::<FakeTls>::default());
    let transport = transport.with_layers(encrypted(&first)).unwrap();
    let transport = transport.with_layers(translated("10.0.0.9:1")).unwrap();
    assert_eq!(transport.guards(), Guards::NONE.with_tls());
    let transport = transport.with_layers(encrypted(&second)).unwrap();
    let target = ServerAddress::parse("mongo-0:27017").unwrap();
    let connect = transport.connect(&target, None).now_or_never();
    connect.unwrap().unwrap();
    assert!(first.servers.lock().unwrap().is_empty());
    assert_eq!(*second.servers.lock().unwrap(), ["mongo-0:27017"]);
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
