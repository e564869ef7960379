//! The client with a real server that refuses commands because of overload.

use std::sync::Arc;

use bson::doc;
use futures::executor::block_on;
use sdam::{
    EventKind, Interest,
    client::{Client, Command},
};
use sdam_live::FailCommand;

use crate::{
    record::{Record, Recorder},
    runtime::{Host, standalone},
};

const LABELS: [&str; 2] = ["SystemOverloadedError", "RetryableError"];

/// The code IngressRequestRateLimitExceeded.
const CODE: i32 = 462;

/// I-62, I-60, Client Backpressure prose tests 3 and 4.
#[test]
fn backpressure_3_4_overload_is_retried_max_adaptive_retries_times() {
    let Some(mongod) = standalone() else { return };
    if mongod.hello().unwrap().get_i32("maxWireVersion").unwrap() < 9 {
        println!("skipped: fail points have no labels before 4.4");
        return;
    }
    let host = Host::start();
    let failing = FailCommand::new(["find"]).error_code(CODE);
    let failing = mongod.fail_command(failing.error_labels(LABELS)).unwrap();
    for (options, attempts) in [("", 3), ("&maxAdaptiveRetries=1", 2)] {
        let record = Arc::<Record>::default();
        let interest = Interest::COMMANDS.union(Interest::POOL_STATES);
        let sink = Recorder::new(&record, interest);
        let builder = Client::builder(&format!("{}{options}", mongod.uri())).unwrap();
        let builder = builder.topology(|topology| topology.sink(sink));
        let client = builder.start(host.runtime.clone()).unwrap();
        let find = doc! { "find": "c" }.to_vec().unwrap();
        let error = block_on(client.run(&Command::read("test", &find))).unwrap_err();
        assert_eq!(error.code(), Some(CODE), "{error}");
        assert!(LABELS.iter().all(|label| error.has_label(label)), "{error}");
        block_on(client.close());
        let events = record.events();
        let count = |wanted: fn(&EventKind) -> bool| {
            let wanted = events.iter().filter(|event| wanted(&event.kind));
            wanted.count()
        };
        let is_find = |kind: &EventKind| matches!(kind, EventKind::CommandStarted { command, .. } if &*command.name == "find");
        assert_eq!(count(is_find), attempts);
        let is_clear = |kind: &EventKind| matches!(kind, EventKind::PoolCleared { .. });
        assert_eq!(count(is_clear), 0);
    }
    failing.disable().unwrap();
}
