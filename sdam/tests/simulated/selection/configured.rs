//! The effect of connection string options on selections.

use std::time::Duration;

use futures::FutureExt;
use sdam::{Criteria, Options, SelectionError, Topology, select::LimitSource};

use super::harness::{Harness, hosts};

/// Starts a topology with the connection string options `query`.
fn start(harness: &mut Harness, number: u16, query: &str) -> Topology {
    let hosts = hosts(number);
    let mut options = Options::parse(&format!("mongodb://a/?{query}")).unwrap();
    options.seeds.clone_from(&hosts);
    harness.start(&hosts, |builder| builder.options(|own| *own = options))
}

/// L-61, B-32: the shorter of the two timeouts limits a selection, and the error names it. The
/// remaining time of an operation replaces the client's `timeoutMS`.
#[test]
fn selections_wait_for_the_shortest_timeout() {
    let own = (LimitSource::ServerSelectionTimeout, "(serverSelectionTimeoutMS)");
    let call = (LimitSource::Call, "(the timeout of the call)");
    let both = "timeoutMS=50&serverSelectionTimeoutMS=80";
    for (query, limit, millis, (source, text)) in [
        ("timeoutMS=50", None, 50, (LimitSource::Timeout, "(timeoutMS)")),
        ("timeoutMS=50&serverSelectionTimeoutMS=40", None, 40, own),
        ("timeoutMS=40&serverSelectionTimeoutMS=40", None, 40, own),
        ("timeoutMS=0&serverSelectionTimeoutMS=40", None, 40, own),
        ("timeoutMS=x&serverSelectionTimeoutMS=40", None, 40, own),
        (both, Some(70), 70, call),
        (both, Some(30), 30, call),
        (both, Some(90), 80, own),
    ] {
        let mut harness = Harness::new();
        let topology = start(&mut harness, 1, query);
        let selection = harness.begin(async move {
            let criteria = Criteria::write();
            match limit.map(Duration::from_millis) {
                Some(limit) => topology.select_within(&criteria, limit).await,
                None => topology.select(&criteria).await,
            }
        });
        let time = Duration::from_millis(millis);
        harness.pass(time);
        let Err(SelectionError::Timeout(error)) = selection.now_or_never().unwrap() else {
            unreachable!("{query}: a server was found");
        };
        assert_eq!((error.limit_source, error.timeout), (source, time), "{query}");
        assert_eq!(error.waited, time, "{query}");
        let text = format!("gave up after 0.0{} s {text}", millis / 10);
        assert!(error.to_string().contains(&text), "{error}");
    }
}
