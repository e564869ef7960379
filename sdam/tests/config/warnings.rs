//! Configuration warnings appear in the running topology, in events, and in the log.

use std::{
    fmt::Debug,
    sync::{Arc, Mutex},
};

use sdam::{Event, EventKind, Options, Runtime, Topology, TopologyBuilder, Warning};
use sdam_events::{
    log::{LogConfig, Severity},
    sink::sink_fn,
    trace::TracingSink,
};
use sdam_testkit::HeldTasks;
use tracing::{
    Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

use crate::{Refusing, poll};

/// Collects messages with level WARN and the target of the topology that this thread logs.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "mongodb::topology" && *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut WarningVisitor(&self.0));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// A visitor that reads the field `warning`.
struct WarningVisitor<'l>(&'l Mutex<Vec<String>>);

impl Visit for WarningVisitor<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "warning" {
            self.0.lock().unwrap().push(format!("{value:?}"));
        }
    }
}

/// The warnings about options: from the topology, in events, and in the log.
#[derive(Debug, Default, PartialEq)]
struct Warnings {
    topology: Vec<String>,
    events: Vec<String>,
    log: Vec<String>,
}

fn texts(warnings: &[Warning]) -> Vec<String> {
    warnings.iter().map(ToString::to_string).collect()
}

/// Starts a topology with `start` and collects its warnings.
fn collect_warnings(
    options: Options,
    start: impl FnOnce(TopologyBuilder) -> Vec<String>,
) -> Warnings {
    let events = Arc::new(Mutex::new(Vec::new()));
    let log = Log::default();
    let sink = sink_fn({
        let events = events.clone();
        move |event: &Event| events.lock().unwrap().push(event.kind.clone())
    });
    let builder = TopologyBuilder::new(options)
        .sink(TracingSink::new(LogConfig::all(Severity::Warn)))
        .sink(sink);
    let topology = tracing::subscriber::with_default(log.clone(), || start(builder));
    let events = events.lock().unwrap();
    assert_eq!(events.first(), Some(&EventKind::TopologyOpening));
    let warned = events.iter().filter_map(|event| match event {
        EventKind::ConfigWarning(warning) => Some(warning.to_string()),
        _ => None,
    });
    Warnings {
        topology,
        events: warned.collect(),
        log: log.0.lock().unwrap().clone(),
    }
}

/// Returns the warnings of a topology with background monitors.
fn multi_threaded(options: Options) -> Warnings {
    collect_warnings(options, |builder| {
        let tasks = HeldTasks::default();
        let runtime = Runtime::new(Refusing::new().io(), Arc::new(tasks.clone()));
        let topology: Topology = builder.start(runtime).unwrap();
        let warnings = texts(topology.warnings());
        poll(&tasks);
        warnings
    })
}

/// Returns the warnings of a single-threaded topology.
fn single_threaded(options: Options) -> Warnings {
    collect_warnings(options, |builder| {
        texts(builder.scan(Refusing::new().io()).unwrap().warnings())
    })
}

/// Asserts that each kind of topology reports exactly these warnings everywhere, in this order.
fn check(options: &Options, multi: &[&str], single: &[&str]) {
    for (warnings, expected) in [
        (multi_threaded(options.clone()), multi),
        (single_threaded(options.clone()), single),
    ] {
        assert_eq!(warnings.topology, expected);
        assert_eq!(warnings.events, expected);
        assert_eq!(warnings.log, expected);
    }
}

#[test]
fn warnings_about_the_connection_string_reach_the_topology_the_events_and_the_log() {
    // B-34
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
    // B-15, B-20
    let options = Options::parse("mongodb://a/?serverMonitoringMode=poll");
    check(
        &options.unwrap(),
        &[],
        &[
            "`serverMonitoringMode` is `poll`: only clients with background monitors have it; the \
           option is ignored",
        ],
    );
    let options = Options::parse("mongodb://a").unwrap();
    check(
        &options.with_server_selection_try_once(false),
        &[
            "`serverSelectionTryOnce` is `false`: only single-threaded clients have it; the option \
           is ignored",
        ],
        &[],
    );
}

#[test]
fn a_topology_without_seeds_warns() {
    // B-4
    let expected = ["`seeds`: there are none; no server will ever be found"];
    check(&Options::new(Vec::new()), &expected, &expected);
}

#[test]
fn valid_options_cause_no_warnings() {
    let options = Options::parse("mongodb://a/?replicaSet=rs").unwrap();
    check(&options, &[], &[]);
}
