use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use super::{Event, EventSink, Interest, call};

/// Combines several sinks: passes each event to every sink that is interested in it, one after the
/// other.
///
/// A sink that panics is not called again; the other sinks still are. The interest of each sink is
/// read once.
///
/// ```
/// use std::sync::Arc;
/// use sdam_events::{channel, sink::{EventSink, Fanout, sink_fn}};
///
/// let (sender, events) = channel::unbounded();
/// let printer = sink_fn(|event| println!("{}", event.kind.name().as_str()));
/// let sink: Fanout = [Arc::new(sender) as Arc<dyn EventSink>, Arc::new(printer)].into_iter().collect();
/// # drop((sink, events));
/// ```
#[derive(Debug, Default)]
pub struct Fanout {
    branches: Vec<Branch>,
}

#[derive(Debug)]
struct Branch {
    sink: Arc<dyn EventSink>,
    interest: Interest,
    has_panicked: AtomicBool,
}

impl EventSink for Fanout {
    fn emit(&self, event: &Event) {
        let name = event.kind.name();
        for branch in &self.branches {
            if branch.interest.contains(name)
                && !branch.has_panicked.load(Ordering::Relaxed)
                && let Err(failure) = call(&*branch.sink, event)
            {
                failure.report();
                branch.has_panicked.store(true, Ordering::Relaxed);
            }
        }
    }

    fn interest(&self) -> Interest {
        self.branches.iter().fold(Interest::NONE, |union, branch| union.union(branch.interest))
    }
}

impl FromIterator<Arc<dyn EventSink>> for Fanout {
    fn from_iter<I: IntoIterator<Item = Arc<dyn EventSink>>>(sinks: I) -> Self {
        let branch = |sink: Arc<dyn EventSink>| Branch {
            interest: sink.interest(),
            sink,
            has_panicked: AtomicBool::new(false),
        };
        Self { branches: sinks.into_iter().map(branch).collect() }
    }
}
