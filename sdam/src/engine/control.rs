//! The control that sends control messages to a server's tasks.

use std::task::{Context, Poll};

use sdam_core::ids::Generation;

use crate::sync::{
    AtomicWaker,
    atomic::{AtomicU32, AtomicU64, Ordering},
};

const CHECK: u32 = 1;
const CANCEL: u32 = 2;
const STOP: u32 = 4;

/// The control word of one task.
///
/// Repeated posts before the task polls count once. Nothing is allocated, and there is no queue
/// that could hold outdated messages.
#[derive(Debug, Default)]
pub(crate) struct MonitorControl {
    bits: AtomicU32,
    /// The generation of the latest cancellation; valid while `CANCEL` is set.
    generation: AtomicU64,
    waker: AtomicWaker,
}

/// The messages taken from a control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signals {
    pub(crate) check: bool,
    pub(crate) cancel: Option<Generation>,
    pub(crate) stop: bool,
}

impl MonitorControl {
    pub(crate) fn check(&self) {
        self.post(CHECK);
    }

    /// Cancels a check that began before `generation`. Generations only grow, because they are
    /// posted under the topology lock.
    pub(crate) fn cancel(&self, generation: Generation) {
        self.generation
            .store(generation.as_u64(), Ordering::Relaxed);
        self.post(CANCEL);
    }

    /// Stops the task. This message is never removed.
    pub(crate) fn stop(&self) {
        self.post(STOP);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.bits.load(Ordering::Acquire) & STOP != 0
    }

    /// Becomes ready with the messages posted since the last poll, if there are any.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Signals> {
        if let Some(signals) = self.take() {
            return Poll::Ready(signals);
        }
        self.waker.register(cx.waker());
        // A message may have been posted between the check and the registration.
        self.take().map_or(Poll::Pending, Poll::Ready)
    }

    fn take(&self) -> Option<Signals> {
        // Reading first keeps the cache line shared while nothing is posted.
        if self.bits.load(Ordering::Acquire) == 0 {
            return None;
        }
        let bits = self.bits.fetch_and(STOP, Ordering::AcqRel);
        let generation = || Generation::from_u64(self.generation.load(Ordering::Relaxed));
        (bits != 0).then(|| Signals {
            check: bits & CHECK != 0,
            cancel: (bits & CANCEL != 0).then(generation),
            stop: bits & STOP != 0,
        })
    }

    fn post(&self, bit: u32) {
        self.bits.fetch_or(bit, Ordering::AcqRel);
        self.waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use futures::task::noop_waker_ref;

    use super::*;

    fn poll(control: &MonitorControl) -> Poll<Signals> {
        control.poll(&mut Context::from_waker(noop_waker_ref()))
    }

    #[test]
    fn signals_are_merged_until_they_are_received_and_stop_persists() {
        let control = MonitorControl::default();
        assert_eq!(poll(&control), Poll::Pending);
        control.check();
        control.check();
        control.cancel(Generation::from_u64(1));
        control.cancel(Generation::from_u64(3));
        let cancel = Some(Generation::from_u64(3));
        assert_eq!(
            poll(&control),
            Poll::Ready(Signals {
                check: true,
                cancel,
                stop: false
            })
        );
        assert_eq!(poll(&control), Poll::Pending);
        control.stop();
        let stop = Poll::Ready(Signals {
            check: false,
            cancel: None,
            stop: true,
        });
        assert_eq!(poll(&control), stop);
        assert_eq!(poll(&control), stop);
    }

    #[test]
    fn posting_a_signal_wakes_the_waiting_task() {
        #[derive(Debug, Default)]
        struct Count(AtomicU32);
        impl std::task::Wake for Count {
            fn wake(self: std::sync::Arc<Self>) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let woken = std::sync::Arc::new(Count::default());
        let waker = woken.clone().into();
        let mut cx = Context::from_waker(&waker);
        let control = MonitorControl::default();
        assert!(control.poll(&mut cx).is_pending());
        control.check();
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
        assert!(control.poll(&mut cx).is_ready());
    }
}
