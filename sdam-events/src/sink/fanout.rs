use std::sync::{Arc, OnceLock};

use super::{Event, EventSink, Interest, SinkPanicked, call};

/// Combines several sinks: passes each event to every sink that is interested in it, one after the
/// other.
///
/// A sink that panics is not called again; the other sinks still are.
///
/// ```
/// use sdam_events::{channel, sink::{Fanout, sink_fn}};
///
/// let (sender, events) = channel::unbounded();
/// let sink = Fanout::new()
///     .with(sender)
///     .with(sink_fn(|event| println!("{}", event.kind.name().as_str())));
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
    failure: OnceLock<SinkPanicked>,
}

impl Fanout {
    /// Creates a fanout without sinks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `sink` after the others. The interest of `sink` is read only once, by this call.
    #[must_use]
    pub fn with(mut self, sink: impl EventSink) -> Self {
        self.push(Arc::new(sink));
        self
    }

    /// Adds `sink` after the others. The interest of `sink` is read only once, by this call.
    pub fn push(&mut self, sink: Arc<dyn EventSink>) {
        self.branches.push(Branch { interest: sink.interest(), sink, failure: OnceLock::new() });
    }

    /// Returns the panics of the sinks, each with the sink's position: 0 for the sink that was
    /// added first.
    pub fn failures(&self) -> impl Iterator<Item = (usize, &SinkPanicked)> {
        self.branches
            .iter()
            .enumerate()
            .filter_map(|(place, branch)| Some((place, branch.failure.get()?)))
    }
}

impl EventSink for Fanout {
    fn emit(&self, event: &Event) {
        let name = event.kind.name();
        for branch in &self.branches {
            if branch.interest.contains(name)
                && branch.failure.get().is_none()
                && let Err(failure) = call(&*branch.sink, event)
            {
                failure.report();
                let _ = branch.failure.set(failure);
            }
        }
    }

    fn interest(&self) -> Interest {
        self.branches.iter().fold(Interest::NONE, |union, branch| union.union(branch.interest))
    }
}

impl FromIterator<Arc<dyn EventSink>> for Fanout {
    fn from_iter<I: IntoIterator<Item = Arc<dyn EventSink>>>(sinks: I) -> Self {
        let mut fanout = Self::new();
        sinks.into_iter().for_each(|sink| fanout.push(sink));
        fanout
    }
}
