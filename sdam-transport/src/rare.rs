//! Points in the code at which simulated runs take rare paths at random ("buggify").
//!
//! At a point, the code asks [`rarely`] whether to take a path that is always correct but that real
//! runs seldom take: a read of one byte, a task that lets all others run first, a wake-up without
//! a reason. Only a thread inside a [`Scope`], which holds a seed, gets the answer true, so a seed
//! reproduces a run. In builds without debug assertions, the answer is always false.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

/// Defines the points, each with its name.
macro_rules! points {
    ($($(#[$own:meta])* $point:ident = $name:literal,)*) => {
        /// A point at which a rare path can be taken.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Point {
            $($(#[$own])* $point,)*
        }

        impl Point {
            /// Every point, in declaration order. There are at most 64.
            pub const ALL: &'static [Self] = &[$(Self::$point),*];

            /// Returns the name, for reports.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$point => $name,)* }
            }
        }
    };
}

points! {
    /// The first read of a message returns one byte.
    ReadOneByte = "read one byte",
    /// A later read of a message returns one byte.
    ReadOneMore = "read one more byte",
    /// A message is written in two parts.
    WriteInParts = "write in parts",
    /// A task pauses between the last byte written and the flush.
    BeforeFlush = "before the flush",
    /// A task pauses between the header and the body of a message.
    AfterHeader = "after the header",
    /// An attempt to open a pooled connection pauses before its first step.
    BeforeAttempt = "before an attempt",
    /// An attempt pauses between connecting and hello.
    BeforeHello = "before hello",
    /// An attempt pauses before it reports the reply to hello.
    BeforeHandshake = "before the handshake is reported",
    /// An attempt pauses before it hands over its connection.
    BeforeEstablished = "before a connection is handed over",
    /// An attempt pauses between its end and its result.
    BeforeResult = "before the result of an attempt",
    /// A monitoring connection pauses before it is reported as open.
    BeforeConnected = "before a monitor is connected",
    /// A monitor pauses before it sends a request.
    BeforeRequest = "before a request",
    /// A monitor pauses before it looks at a reply.
    BeforeReply = "before a reply",
    /// A server's task pauses before it reports an answer to the engine.
    BeforeAnswer = "before an answer",
    /// A server's task pauses before it carries out an order.
    BeforeOrder = "before an order",
    /// A server's task is polled without a reason.
    PolledTask = "a server's task polled for nothing",
    /// A server's task handles its deadline too early.
    EarlyDeadline = "an early deadline",
    /// The answer of a measurement is taken before that of a check.
    PingFirst = "a ping before a check",
    /// Servers' tasks are woken in the reverse order.
    TasksReversed = "tasks woken in reverse",
    /// Readers are woken without a change.
    ReadersForNothing = "readers woken for nothing",
    /// Servers' tasks are told to read their deadlines again without a reason.
    LookForNothing = "deadlines read for nothing",
    /// The handles on a shared deployment catch up in the reverse order.
    HandlesReversed = "handles in reverse",
    /// A look-up of SRV records pauses before it begins.
    BeforeLookUp = "before a look-up",
    /// A look-up of SRV records pauses before its outcome is applied.
    BeforeRecords = "before records are applied",
    /// A selection looks for a server again without a change.
    SelectAgain = "a selection that looks again",
    /// A selection whose time is over pauses before its last look.
    BeforeLastLook = "before a last look",
    /// A task that waits for a description pauses before it waits.
    BeforeWait = "before a wait",
    /// The caller that closes a topology pauses after the monitors have ended.
    BeforeClosed = "before a topology is closed",
    /// A background task of a pool or a queue pauses before it begins.
    BeforeTask = "before a background task",
    /// The worker of a pool is polled without a reason.
    PolledWorker = "a worker polled for nothing",
    /// The worker of a pool handles its timer too early.
    EarlyTimer = "an early timer",
    /// Connections are closed, and check-outs woken, one by one.
    SmallBatch = "a batch of one",
    /// The tasks that a change of a pool concerns are woken in the reverse order.
    WakersReversed = "wakers in reverse",
    /// A check-out pauses before it asks the pool.
    BeforeCheckOut = "before a check-out",
    /// A waiting check-out is polled without a reason.
    PolledCheckOut = "a check-out polled for nothing",
    /// The socket that was opened early is lost.
    EarlySocketLost = "an early socket lost",
    /// A pool fills up later than at once.
    LateFill = "a late fill",
    /// The network accepts only a part of the bytes of a write.
    PartialWrite = "a partial write",
    /// The network is not ready for a write at once.
    LateWrite = "a late write",
    /// The network wakes a reader without bytes.
    EmptyWake = "a reader woken for nothing",
    /// The network splits bytes.
    SplitBytes = "split bytes",
    /// A timer is woken too early.
    TimerForNothing = "a timer woken for nothing",
    /// A dialer pauses before it dials.
    BeforeDial = "before a dial",
}

/// Returns true if the rare path of `point` has to be taken now.
#[inline]
pub fn rarely(point: Point) -> bool {
    #[cfg(debug_assertions)]
    return scope::draws(point);
    #[cfg(not(debug_assertions))]
    {
        let _ = point;
        false
    }
}

/// Wakes the task and returns true if it has to return `Pending` at `point`.
#[inline]
pub fn defers(point: Point, cx: &Context<'_>) -> bool {
    let defers = rarely(point);
    if defers {
        cx.waker().wake_by_ref();
    }
    defers
}

/// Lets the other tasks run first if the rare path of `point` has to be taken.
#[inline]
pub fn pause(point: Point) -> Pause {
    Pause { is_over: !rarely(point) }
}

/// The future of [`pause`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is polled"]
pub struct Pause {
    is_over: bool,
}

impl Future for Pause {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.is_over, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(debug_assertions)]
pub use scope::Scope;

#[cfg(debug_assertions)]
mod scope {
    use std::{cell::RefCell, marker::PhantomData};

    use sdam_core::rng::Rng;

    use super::Point;

    thread_local! {
        static DRAWN: RefCell<Option<Drawn>> = const { RefCell::new(None) };
    }

    struct Drawn {
        rng: Rng,
        /// The rare path of an enabled point is taken once in this many times.
        rarity: u64,
        /// The points whose rare paths can be taken, one bit each.
        enabled: u64,
        /// The points whose rare paths were taken.
        taken: u64,
    }

    /// While this exists, rare paths are taken on the current thread.
    #[derive(Debug)]
    pub struct Scope(PhantomData<*const ()>);

    impl Scope {
        /// Enables each point with a probability of one in four. At all enabled points, the rare
        /// path is taken once in 4, 12 or 36 times on average.
        pub fn enter(seed: u64) -> Self {
            let mut rng = Rng::new(seed);
            let enabled = rng.next_u64() & rng.next_u64();
            let rarity = [4, 12, 36][rng.below(3) as usize];
            DRAWN.set(Some(Drawn { rng, rarity, enabled, taken: 0 }));
            Self(PhantomData)
        }

        /// Returns the points whose rare paths were taken.
        pub fn taken(&self) -> impl Iterator<Item = Point> {
            let taken = DRAWN.with_borrow(|drawn| drawn.as_ref().map_or(0, |drawn| drawn.taken));
            let all = Point::ALL.iter().copied();
            all.filter(move |point| taken & bit(*point) != 0)
        }
    }

    impl Drop for Scope {
        fn drop(&mut self) {
            DRAWN.set(None);
        }
    }

    pub(super) fn draws(point: Point) -> bool {
        DRAWN.with_borrow_mut(|drawn| {
            let Some(drawn) = drawn.as_mut().filter(|drawn| drawn.enabled & bit(point) != 0) else {
                return false;
            };
            let is_taken = drawn.rng.below(drawn.rarity) == 0;
            drawn.taken |= if is_taken { bit(point) } else { 0 };
            is_taken
        })
    }

    const fn bit(point: Point) -> u64 {
        1 << point as u64
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    fn rare_paths_are_taken_only_in_a_scope_and_depend_only_on_its_seed() {
        assert!(Point::ALL.len() <= 64);
        let draw = || -> Vec<bool> {
            let points = Point::ALL.iter().cycle().take(10_000);
            points.map(|point| rarely(*point)).collect()
        };
        assert!(!draw().contains(&true), "there is no scope");
        let within = |seed| {
            let scope = Scope::enter(seed);
            (draw(), scope.taken().map(Point::as_str).collect::<Vec<_>>())
        };
        let (drawn, taken) = within(1);
        assert!(drawn.contains(&true));
        assert!((1..Point::ALL.len()).contains(&taken.len()), "some points are disabled");
        assert_eq!(within(1), (drawn, taken));
        assert_ne!(within(1), within(2));
        assert!(!draw().contains(&true), "the scope has ended");
    }
}
