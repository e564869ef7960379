//! Tests transports that wrap the runtime's transport, for a deployment behind a proxy and with
//! TLS.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use sdam::{
    Connection, Criteria, Error, ServerAddress, Topology, Transport, async_trait,
    options::AddressTable,
    runtime::{Instant, Wrap, Wrapped},
};
use sdam_sim::{
    Blueprint,
    runtime::{DnsFault, Sim},
};

use super::address;

/// Counts the attempts to connect.
#[derive(Clone, Debug, Default)]
struct Counting(Arc<AtomicU64>);

#[async_trait]
impl Wrap for Counting {
    async fn connect(
        &self,
        inner: &dyn Transport,
        target: &ServerAddress,
        deadline: Option<Instant>,
    ) -> Result<Box<dyn Connection>, Error> {
        self.0.fetch_add(1, Relaxed);
        inner.connect(target, deadline).await
    }
}

/// A wrapper that implements only the required methods.
#[derive(Debug)]
struct Naive(Arc<dyn Transport>);

#[async_trait]
impl Transport for Naive {
    async fn connect(
        &self,
        target: &ServerAddress,
        deadline: Option<Instant>,
    ) -> Result<Box<dyn Connection>, Error> {
        self.0.connect(target, deadline).await
    }
}

/// Simulates a server whose name only a proxy can resolve.
fn behind_a_proxy() -> Sim {
    let sim = Sim::new(3, &Blueprint::standalone().at([address("inside:27017")]));
    sim.dns().set_fault("inside", Some(DnsFault::NoSuchName));
    sim.proxies().add(address("bastion:1080"), None);
    sim
}

#[test]
fn a_wrapped_transport_keeps_translation_proxy_and_tls() {
    // With TLS, the certificate is compared with the seed's name. This is the server's name only if
    // the seed is not translated, so only the untranslated seed uses TLS.
    for (seed, encrypted) in [("inside", true), ("outside", false)] {
        let sim = behind_a_proxy();
        if encrypted {
            sim.tls().require();
        }
        let counting = Counting::default();
        let mut runtime = sim.runtime();
        runtime.backend.transport =
            Arc::new(Wrapped::new(runtime.backend.transport, counting.clone()));
        let uri = format!("mongodb://{seed}/?proxyHost=bastion&tls={encrypted}");
        let table = [(address("outside:27017"), address("inside:27017"))];
        let builder = Topology::builder(&uri).unwrap();
        let builder = builder.translate(AddressTable::from_iter(table));
        sim.block_on(async {
            let topology = builder.start(runtime).unwrap();
            topology.select(&Criteria::write()).await.unwrap();
            topology.close().await;
        });
        let (traffic, opened) = (sim.network().traffic(), counting.0.load(Relaxed));
        assert_eq!(traffic.direct, 0);
        // Closing may abandon an attempt before it reaches the proxy.
        assert!((1..=opened).contains(&traffic.proxied), "{traffic:?} {opened}");
        assert_eq!(traffic.encrypted > 0, encrypted);
        assert_eq!(traffic.plain_text > 0, !encrypted);
    }
}

#[test]
fn a_wrapper_that_forwards_only_connections_refuses_what_it_would_lose() {
    let sim = behind_a_proxy();
    let start = |options: &str, translates: bool| {
        let mut runtime = sim.runtime();
        runtime.backend.transport = Arc::new(Naive(runtime.backend.transport));
        let mut builder = Topology::builder(&format!("mongodb://inside/?{options}")).unwrap();
        if translates {
            let table = [(address("inside:27017"), address("elsewhere:27017"))];
            builder = builder.translate(AddressTable::from_iter(table));
        }
        match sim.block_on(async { builder.start(runtime) }) {
            Err(error) => error,
            other => unreachable!("{options}: {other:?}"),
        }
    };
    for (options, translates, option) in [
        ("proxyHost=bastion", false, "proxyHost"),
        ("tls=true", false, "tls"),
        ("", true, "translate"),
    ] {
        let error = start(options, translates);
        assert_eq!(error.option(), option);
        assert!(error.remedy().contains("`Wrapped`"), "{error}");
    }
    let traffic = sim.network().traffic();
    assert_eq!((traffic.direct, traffic.proxied), (0, 0));
}
