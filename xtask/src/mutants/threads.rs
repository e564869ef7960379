//! Deliberate bugs that only show between threads.

use super::table::Mutant;

/// Each with the models that have to notice it.
pub(super) const THREAD_MUTANTS: &[(&str, Mutant)] = &[
    (
        "mailbox::",
        Mutant {
            name: "register-late",
            about: "a task does not look into its mailbox once more after it has registered",
            file: "sdam/src/mailbox.rs",
            find: "self.take().map_or(Poll::Pending, Poll::Ready)",
            replace: "Poll::Pending",
        },
    ),
    (
        "mailbox::",
        Mutant {
            name: "wake-before-post",
            about: "a task is woken before the word is in its mailbox",
            file: "sdam/src/mailbox.rs",
            find: r"        self.bits.fetch_or(bit, Ordering::AcqRel);
        self.waker.wake();",
            replace: r"        self.waker.wake();
        self.bits.fetch_or(bit, Ordering::AcqRel);",
        },
    ),
    (
        "mailbox::",
        Mutant {
            name: "unordered-generation",
            about: "a cancellation may be seen before its generation",
            file: "sdam/src/mailbox.rs",
            find: "self.bits.fetch_or(bit, Ordering::AcqRel);",
            replace: "self.bits.fetch_or(bit, Ordering::Relaxed);",
        },
    ),
    (
        "demand::",
        Mutant {
            name: "ticket-in-two-steps",
            about: "who may wait is decided before it is counted",
            file: "sdam/src/demand.rs",
            find: r"        let taken = self
            .0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);",
            replace: r"        let before = self.0.load(Ordering::SeqCst);
        let taken = more(before).ok_or(before).inspect(|_| {
            self.0.fetch_add(1, Ordering::SeqCst);
        });
        let taken = taken.map(|_| before);",
        },
    ),
    (
        "lanes::",
        Mutant {
            name: "forget-lanes",
            about: "operations of other lanes do not count",
            file: "sdam/src/server.rs",
            find: "self.lanes.iter().map(CountedArc::strong_count).sum();",
            replace: "CountedArc::strong_count(&self.lanes[0]) + LANES - 1;",
        },
    ),
    (
        "queue::",
        Mutant {
            name: "early-dispatcher",
            about: "a dispatcher looks into the queue before it can be woken",
            file: "sdam-events/src/dispatch.rs",
            find: r"            this.queue.waker.register(cx.waker());
            let delivery = this.queue.deliver(&**sink, BUDGET);",
            replace: r"            let delivery = this.queue.deliver(&**sink, BUDGET);
            this.queue.waker.register(cx.waker());",
        },
    ),
    (
        "queue::",
        Mutant {
            name: "silent-return",
            about: "who gives the right to deliver back does not wake the dispatcher",
            file: "sdam-events/src/queue/batch.rs",
            find: r"        if more {
            self.queue.waker.wake();
        }",
            replace: "let _ = more;",
        },
    ),
    (
        "queue::",
        Mutant {
            name: "drain-once",
            about: "who drains does not look once more after others were turned away",
            file: "sdam-events/src/queue.rs",
            find: "if round.stopped != Stopped::Empty || self.depth() == 0 {",
            replace: "if true {",
        },
    ),
    (
        "queue::",
        Mutant {
            name: "push-after-failure",
            about: "what is pushed while the sink panics stays in the queue",
            file: "sdam-events/src/queue.rs",
            find: r"        let mut state = self.lock();
        state.closed = true;
        let undelivered = mem::take(&mut state.buffer);",
            replace: r"        let mut state = self.lock();
        let undelivered = mem::take(&mut state.buffer);",
        },
    ),
    (
        "queue::",
        Mutant {
            name: "number-outside",
            about: "events are numbered before their place in the queue is taken",
            file: "sdam-events/src/queue.rs",
            find: r"        let mut state = self.lock();
        if state.closed {
            return;
        }
        if interest",
            replace: r"        let seq = {
            let mut state = self.lock();
            state.last_seq += 1;
            state.last_seq
        };
        let mut state = self.lock();
        if state.closed {
            return;
        }
        state.last_seq = seq - 1;
        if interest",
        },
    ),
];
