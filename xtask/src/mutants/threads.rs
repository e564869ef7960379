//! Deliberate concurrency bugs.

use super::table::Mutant;

/// Each mutant with the models that have to detect it.
pub(super) const THREAD_MUTANTS: &[(&str, Mutant)] = &[
    (
        "control::",
        Mutant {
            name: "register-late",
            about: "a task does not check for messages again after it has registered its waker",
            file: "sdam/src/engine/control.rs",
            find: "self.take().map_or(Poll::Pending, Poll::Ready)",
            replace: "Poll::Pending",
        },
    ),
    (
        "control::",
        Mutant {
            name: "wake-before-post",
            about: "a task is woken before the message is stored",
            file: "sdam/src/engine/control.rs",
            find: r"        self.bits.fetch_or(bit, Ordering::AcqRel);
        self.waker.wake();",
            replace: r"        self.waker.wake();
        self.bits.fetch_or(bit, Ordering::AcqRel);",
        },
    ),
    (
        "control::",
        Mutant {
            name: "unordered-generation",
            about: "a cancellation may be seen before its generation",
            file: "sdam/src/engine/control.rs",
            find: "self.bits.fetch_or(bit, Ordering::AcqRel);",
            replace: "self.bits.fetch_or(bit, Ordering::Relaxed);",
        },
    ),
    (
        "waiters::",
        Mutant {
            name: "entry-in-two-steps",
            about: "the limit of waiting selections is checked before the count is raised",
            file: "sdam/src/select/waiters.rs",
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
            about: "operations of other lanes are not counted",
            file: "sdam/src/engine/server.rs",
            find: "self.lanes.iter().map(CountedArc::strong_count).sum();",
            replace: "CountedArc::strong_count(&self.lanes[0]) + LANES - 1;",
        },
    ),
    (
        "publication::",
        Mutant {
            name: "listen-late",
            about: "a selection listens for changes only after it has read the snapshot",
            file: "sdam/src/topology/select.rs",
            find: r"            let changed = self.published.changed.listen();
            if let Some(selected) = self.try_select(criteria)? {
                return Ok(selected);
            }",
            replace: r"            if let Some(selected) = self.try_select(criteria)? {
                return Ok(selected);
            }
            let changed = self.published.changed.listen();",
        },
    ),
    (
        "publication::",
        Mutant {
            name: "watch-late",
            about: "a stream of snapshots does not check again after it has begun to listen",
            file: "sdam/src/topology/watch.rs",
            find: r"            this.listener = Some(this.shared.published.changed.listen());
            if let Some(snapshot) = this.newer() {
                return Poll::Ready(Some(snapshot));
            }",
            replace: r"            this.listener = Some(this.shared.published.changed.listen());",
        },
    ),
    (
        "publication::",
        Mutant {
            name: "notify-one",
            about: "a publication wakes only one of two waiting tasks",
            file: "sdam/src/topology/shared.rs",
            find: "self.published.changed.notify(usize::MAX);",
            replace: "self.published.changed.notify(1);",
        },
    ),
    (
        "checks::",
        Mutant {
            name: "forget-waiters",
            about: "a monitor that becomes idle does not check for waiting selections",
            file: "sdam/src/monitor/task.rs",
            find: "earliest.filter(|_| self.host.is_check_wanted());",
            replace: "earliest.filter(|_| false);",
        },
    ),
    (
        "checks::",
        Mutant {
            name: "request-before-entry",
            about: "monitors are woken before the waiting selection is counted",
            file: "sdam/src/topology/select.rs",
            find: "let Some((_guard, first)) = self.waiters.enter(max_waiters) else {",
            replace: r"self.request_checks();
        let Some((_guard, first)) = self
            .waiters
            .enter(max_waiters)
            .map(|(guard, _)| (guard, false))
        else {",
        },
    ),
    (
        "shutdown::",
        Mutant {
            name: "count-late",
            about: "a monitor is counted when it begins, after the topology was unlocked",
            file: "sdam/src/monitor/task.rs",
            find: r"        host.task_begins();
        let address = server.core.address.clone();
        let machine = MonitorMachine::new(Arc::clone(host.config()), server.id(), address);
        Self {
            host,
            server,
            machine,
            stage: Stage::Spawned,
        }
    }

    /// Watches the server until it leaves the topology.
    ///
    /// A pool or a transport that panics ends the check that met it. The watch then starts over, in
    /// the same task: a destructor would have to spawn another one.
    pub(crate) async fn run(mut self) {",
            replace: r"        let address = server.core.address.clone();
        let machine = MonitorMachine::new(Arc::clone(host.config()), server.id(), address);
        Self {
            host,
            server,
            machine,
            stage: Stage::Spawned,
        }
    }

    pub(crate) async fn run(mut self) {
        self.host.task_begins();",
        },
    ),
    (
        "shutdown::",
        Mutant {
            name: "close-in-two-steps",
            about: "closing checks for tasks before it marks the topology as closed",
            file: "sdam/src/topology/tasks.rs",
            find: "self.state.fetch_or(CLOSED, Ordering::SeqCst) / TASK == 0",
            replace: r"{
            let none = self.state.load(Ordering::SeqCst) / TASK == 0;
            self.state.fetch_or(CLOSED, Ordering::SeqCst);
            none
        }",
        },
    ),
    (
        "shutdown::",
        Mutant {
            name: "finished-late",
            about: "closing listens for the end of the last task only after it has checked the count",
            file: "sdam/src/topology/tasks.rs",
            find: r"            let ended = self.ended.listen().fuse();
            if self.state.load(Ordering::SeqCst) / TASK == 0 {
                return;
            }",
            replace: r"            if self.state.load(Ordering::SeqCst) / TASK == 0 {
                return;
            }
            let ended = self.ended.listen().fuse();",
        },
    ),
    (
        "shutdown::",
        Mutant {
            name: "measure-after-stop",
            about: "an RTT task checks whether the server was removed before it registers itself",
            file: "sdam/src/engine/server.rs",
            find: r"        let mut task = self.rtt_task();
        // Looked at under the lock, so that `stop` cannot miss a task that begins meanwhile.
        if task.is_some() || self.control.is_stopped() {",
            replace: r"        let stopped = self.control.is_stopped();
        let mut task = self.rtt_task();
        if task.is_some() || stopped {",
        },
    ),
    (
        "queue::",
        Mutant {
            name: "early-dispatcher",
            about: "a dispatcher reads the queue before it registers its waker",
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
            about: "releasing the right to deliver does not wake the dispatcher",
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
            about: "a drain does not check again after other drains were turned away",
            file: "sdam-events/src/queue.rs",
            find: "if round.stopped != Stopped::Empty || self.depth() == 0 {",
            replace: "if true {",
        },
    ),
    (
        "queue::",
        Mutant {
            name: "push-after-failure",
            about: "events pushed while a sink panics stay in the queue",
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
        state.under_way.count(name, interest);",
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
        state.under_way.count(name, interest);",
        },
    ),
    (
        "",
        Mutant {
            name: "lose-delivered",
            about: "a connection handed to a check-out that is dropped is lost",
            file: "sdam-pool/src/machine/work.rs",
            find: r"            self.in_use -= 1;
            self.settle(connection, now, &mut after);",
            replace: r"            drop((connection, now));",
        },
    ),
    (
        "",
        Mutant {
            name: "wake-none",
            about: "a check-out is not woken when it is given a connection",
            file: "sdam-pool/src/core.rs",
            find: "wake.into_iter().for_each(Waker::wake);",
            replace: "drop(wake);",
        },
    ),
    (
        "",
        Mutant {
            name: "keep-stale",
            about: "a connection that is checked in after a clear is used again",
            file: "sdam-pool/src/machine.rs",
            find: "None => connection.generation() < self.generation,",
            replace: "None => false,",
        },
    ),
    (
        "",
        Mutant {
            name: "look-first",
            about: "a command looks for its interruption before it registers for it",
            file: "sdam-pool/src/interrupt.rs",
            find: r"            // Registered first, so that an interruption from here on wakes the task.
            self.waker.register(cx.waker());
            if self.is_set() {
                return Poll::Ready(None);
            }",
            replace: r"            if self.is_set() {
                return Poll::Ready(None);
            }
            self.waker.register(cx.waker());",
        },
    ),
];
