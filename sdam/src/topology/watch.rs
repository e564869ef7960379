//! The stream of topology snapshots.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures::{future::Future, stream::Stream};

use super::shared::Shared;
use crate::{
    engine::snapshot::Snapshot,
    sync::{EventListener, listen},
};

/// A stream of snapshots, beginning with the current one.
///
/// Each snapshot is newer than the one before. A slow reader misses some snapshots. The stream ends
/// after the snapshot of the closed topology.
///
/// # Cancel safety
///
/// The future of the next snapshot may be dropped at any time; no snapshot is lost.
#[derive(Debug)]
#[must_use = "a stream does nothing unless it is polled"]
pub struct TopologyWatch {
    shared: Arc<Shared>,
    /// The version of the last snapshot returned.
    seen: Option<u64>,
    listener: Option<EventListener>,
    ended: bool,
}

impl TopologyWatch {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, seen: None, listener: None, ended: false }
    }

    fn newer(&mut self) -> Option<Arc<Snapshot>> {
        let snapshot = self.shared.published.load();
        if self.seen.is_some_and(|seen| seen >= snapshot.version) {
            return None;
        }
        self.seen = Some(snapshot.version);
        self.ended = snapshot.closed;
        Some(Arc::clone(&snapshot))
    }
}

impl Stream for TopologyWatch {
    type Item = Arc<Snapshot>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Arc<Snapshot>>> {
        let this = &mut *self;
        loop {
            if this.ended {
                return Poll::Ready(None);
            }
            if let Some(listener) = &mut this.listener {
                if Pin::new(listener).poll(cx).is_pending() {
                    return Poll::Pending;
                }
                this.listener = None;
            }
            if let Some(snapshot) = this.newer() {
                return Poll::Ready(Some(snapshot));
            }
            // Starts to listen before reading the snapshot again, so that no change is missed.
            this.listener = Some(listen(&this.shared.published.changed));
            if let Some(snapshot) = this.newer() {
                return Poll::Ready(Some(snapshot));
            }
        }
    }
}
