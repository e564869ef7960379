//! Checks that configuration warnings appear in the running topology and in events, which the log
//! sinks write to the log.

use std::sync::Arc;

use sdam::{EventKind, Options, Runtime, Topology, TopologyBuilder, options::Warning};
use sdam_events::channel::unbounded;
use sdam_testkit::HeldTasks;

use super::{Refusing, poll};
use crate::drain;

/// Starts a topology by calling `start`, and checks the warnings that `start` returns and those in
/// the events.
fn check_mode(
    options: &Options,
    expected: &[&str],
    start: impl FnOnce(TopologyBuilder) -> Vec<Warning>,
) {
    let (sink, mut events) = unbounded();
    let warnings = start(TopologyBuilder::new(options.clone()).sink(sink));
    let warnings = warnings.iter().map(ToString::to_string);
    assert_eq!(warnings.collect::<Vec<_>>(), expected);
    let events = drain(&mut events);
    assert_eq!(events[0].kind, EventKind::TopologyOpening);
    let warned = events.iter().filter_map(|event| match &event.kind {
        EventKind::ConfigWarning(warning) => Some(warning.to_string()),
        _ => None,
    });
    assert_eq!(warned.collect::<Vec<_>>(), expected);
}

/// Asserts that each kind of topology reports exactly these warnings, in this order.
fn check(options: &Options, multi: &[&str], single: &[&str]) {
    check_mode(options, multi, |builder| {
        let tasks = HeldTasks::default();
        let runtime = Runtime::new(Refusing::new().backend(), Arc::new(tasks.clone()));
        let topology: Topology = builder.start(runtime).unwrap();
        poll(&tasks);
        topology.warnings().to_vec()
    });
    check_mode(options, single, |builder| {
        let topology = builder.scan(Refusing::new().backend()).unwrap();
        topology.warnings().to_vec()
    });
}

#[test]
fn warnings_about_the_connection_string_reach_the_topology_and_the_events() {
    // Unknown, repeated and empty options cause warnings (B-34).
    let options = Options::parse(
        "mongodb://a,a/?foo=1&connectTimeoutMS=x&wtimeout=5&replicaSet=x&replicaSet=y",
    );
    let expected = [
        "`host` is `a`: it is named more than once; it counts once",
        "`foo`: there is no such option; it is ignored",
        "`connectTimeoutMS` is `x`: it must be a whole number, at least 0; the option is ignored",
        "`wtimeout` is `5`: this name is deprecated; it is read as `wTimeoutMS`",
        "`replicaSet` is `y`: it is given more than once; `y` is used",
    ];
    check(&options.unwrap(), &expected, &expected);
}

#[test]
fn each_mode_warns_about_options_without_effect_in_it() {
    // Some options have an effect in one mode only (B-15, B-20).
    let options = Options::parse("mongodb://a/?serverMonitoringMode=poll");
    check(
        &options.unwrap(),
        &[],
        &["`serverMonitoringMode` is `poll`: only clients with background monitors have it; the \
           option is ignored"],
    );
    let mut options = Options::parse("mongodb://a").unwrap();
    options.server_selection_try_once = Some(false);
    check(
        &options,
        &["`serverSelectionTryOnce` is `false`: only single-threaded clients have it; the option \
           is ignored"],
        &[],
    );
}

#[test]
fn a_topology_without_seeds_warns() {
    // A topology without seeds warns that there are none (B-4).
    let expected = ["`seeds`: there are none; no server will ever be found"];
    check(&Options::new(Vec::new()), &expected, &expected);
}
