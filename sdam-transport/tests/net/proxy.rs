//! Connections through a proxy.

use sdam_core::options::ProxyOptions;

use super::*;

/// Connects to `target` through a proxy that closes every connection.
fn through(dial: &FakeDial, target: &ServerAddress) -> Result<(), Error> {
    let layers = layers::layers(|layers| layers.proxy = Some(ProxyOptions::new("bastion", 1080)));
    let direct = NetTransport::new(dial.clone(), Arc::new(ManualClock::default()));
    let transport = direct.with_layers(layers).unwrap();
    let connected = transport.connect(target, None).now_or_never().unwrap();
    connected.map(drop).map_err(Error::without_context)
}

fn refused(dial: &FakeDial) -> Error {
    through(dial, &ServerAddress::new("mongo-0", 27017)).unwrap_err()
}

#[test]
fn the_proxy_is_looked_up_and_dialled_and_the_member_is_not() {
    let dial = dial(&[("bastion", &["::9", "9.9.9.9"])], &[("[::9]:1080", REFUSED)]);
    let error = refused(&dial);
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
    let target = ServerAddress::unix("/run/mongodb-27017.sock");
    through(&dial, &target).unwrap();
    assert_eq!(dialled(&dial), target.as_str());
}

#[test]
fn a_proxy_that_cannot_be_reached_is_named_and_no_sign_of_overload() {
    let check = |dial: &FakeDial, cause: &str| {
        let error = refused(dial);
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
