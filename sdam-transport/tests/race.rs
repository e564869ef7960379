//! Tests of deadlines, and of connection attempts that race each other.

#![expect(clippy::panic, reason = "a panic fails the test")]

use std::{
    cell::RefCell,
    collections::BTreeMap,
    future::Future,
    net::SocketAddr,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use futures::{FutureExt as _, channel::oneshot, future};
use sdam_core::time::{Instant, UnixTime};
use sdam_testkit::ManualClock;
use sdam_transport::{
    BoxFuture,
    clock::Clock,
    race::*,
    system::{Epoch, ThreadClock},
};

fn poll<F: Future>(future: &mut Pin<&mut F>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_ready_future_wins_over_a_passed_deadline() {
    let clock = ManualClock::default();
    let past = Some(clock.now());
    let mut raced = pin!(deadline(&clock, past, future::ready(7)));
    assert_eq!(poll(&mut raced), Poll::Ready(Ok(7)));
}

#[test]
fn a_deadline_ends_a_future_that_is_pending() {
    let clock = ManualClock::default();
    let soon = Some(clock.now() + Duration::from_millis(10));
    let mut raced = pin!(deadline(&clock, soon, future::pending::<()>()));
    clock.advance(Duration::from_millis(9));
    assert_eq!(poll(&mut raced), Poll::Pending);
    clock.advance(Duration::from_millis(1));
    assert!(matches!(poll(&mut raced), Poll::Ready(Err(_))));
}

#[test]
fn without_a_deadline_there_is_no_time_limit() {
    let clock = ManualClock::default();
    let mut raced = pin!(deadline(&clock, None, future::pending::<()>()));
    clock.advance(Duration::MAX);
    assert_eq!(poll(&mut raced), Poll::Pending);
}

/// A clock whose timers block.
#[derive(Debug)]
struct Blocking(ThreadClock);

impl Clock for Blocking {
    fn now(&self) -> Instant {
        self.0.now()
    }

    fn wall(&self) -> UnixTime {
        self.0.wall()
    }

    fn sleep_until(&self, _: Instant) -> BoxFuture<'static, ()> {
        panic!("a timer would block the future")
    }

    fn blocks(&self) -> bool {
        true
    }
}

#[test]
fn on_a_blocking_clock_a_race_blocks_until_the_future_is_woken_or_the_deadline() {
    let clock = Blocking(ThreadClock::new(Epoch::begin()));
    let later = |millis| Some(clock.now() + Duration::from_millis(millis));
    let (sender, woken) = oneshot::channel();
    let thread = thread::spawn(|| sender.send(7));
    let raced = deadline(&clock, later(60_000), woken).now_or_never();
    assert_eq!(raced, Some(Ok(Ok(7))));
    thread.join().unwrap().unwrap();
    let soon = later(10);
    let raced = deadline(&clock, soon, future::pending::<()>()).now_or_never();
    assert!(matches!(raced, Some(Err(_))));
    assert!(Some(clock.now()) >= soon);
}

/// The scripted results and the log of a race's attempts.
#[derive(Clone, Default)]
struct Network {
    begun: Rc<RefCell<String>>,
    dropped: Rc<RefCell<String>>,
    outcomes: Rc<RefCell<BTreeMap<char, Result<char, i32>>>>,
}

/// A guard that records the name of its attempt when it is dropped.
struct Attempt(Network, char);

impl Drop for Attempt {
    fn drop(&mut self) {
        self.0.dropped.borrow_mut().push(self.1);
    }
}

impl Network {
    fn attempt(&self, name: char) -> impl Future<Output = Result<char, i32>> + use<> {
        self.begun.borrow_mut().push(name);
        let attempt = Attempt(self.clone(), name);
        future::poll_fn(move |_| match attempt.0.outcomes.borrow().get(&attempt.1) {
            Some(outcome) => Poll::Ready(*outcome),
            None => Poll::Pending,
        })
    }
}

/// The milliseconds until a poll of a race, the attempts that end in that time, and the names of
/// all attempts that have begun once the poll returns.
type Step = (u64, &'static [(char, Result<char, i32>)], &'static str);

type Outcome = Poll<Result<char, NoSuccess<char, i32>>>;

/// Races `candidates` until `deadline` (in milliseconds). No poll except the last one may be ready.
/// Returns the result of the last poll, and the attempts that had been dropped by then.
#[track_caller]
fn race(candidates: &str, deadline: Option<u64>, steps: &[Step]) -> (Outcome, String) {
    let (clock, network) = (ManualClock::default(), Network::default());
    let mut race = pin!(happy_eyeballs(
        &clock,
        ATTEMPT_DELAY,
        deadline.map(Instant::from_millis),
        candidates.chars().collect(),
        |name| network.attempt(*name),
    ));
    let mut outcome = Poll::Pending;
    for (millis, ended, begun) in steps {
        assert!(outcome.is_pending(), "the race ended before {begun}");
        clock.advance(Duration::from_millis(*millis));
        network.outcomes.borrow_mut().extend(ended.iter().copied());
        outcome = poll(&mut race);
        assert_eq!(*network.begun.borrow(), *begun);
    }
    (outcome, network.dropped.borrow().clone())
}

#[track_caller]
fn won(candidates: &str, deadline: Option<u64>, steps: &[Step], winner: char) {
    let (outcome, _) = race(candidates, deadline, steps);
    assert!(matches!(outcome, Poll::Ready(Ok(name)) if name == winner), "{outcome:?}");
}

#[track_caller]
fn lost(candidates: &str, deadline: Option<u64>, steps: &[Step]) -> NoSuccess<char, i32> {
    match race(candidates, deadline, steps).0 {
        Poll::Ready(Err(lost)) => lost,
        other => panic!("{other:?}"),
    }
}

#[test]
fn attempts_start_one_by_one_after_the_delay() {
    // After the last candidate's attempt, no further attempt begins.
    let steps: [Step; 5] =
        [(0, &[], "a"), (249, &[], "a"), (1, &[], "ab"), (250, &[], "abc"), (10_000, &[], "abc")];
    assert!(race("abc", None, &steps).0.is_pending());
}

#[test]
fn the_first_success_wins_and_the_others_are_dropped() {
    let steps: [Step; 3] = [(0, &[], "a"), (250, &[], "ab"), (0, &[('b', Ok('B'))], "ab")];
    won("abc", None, &steps, 'B');
    assert_eq!(race("abc", None, &steps).1.len(), 2);
}

#[test]
fn of_simultaneous_successes_the_earlier_attempt_wins() {
    let both = &[('b', Ok('B')), ('a', Ok('A'))];
    won("ab", None, &[(0, &[], "a"), (250, &[], "ab"), (0, both, "ab")], 'A');
}

#[test]
fn a_failure_starts_the_next_attempt_immediately() {
    // The delay counts from the start of the attempt.
    let steps: [Step; 3] = [(0, &[('a', Err(1))], "ab"), (249, &[], "ab"), (1, &[], "abc")];
    assert!(race("abc", None, &steps).0.is_pending());
}

#[test]
fn a_late_failure_does_not_affect_running_attempts() {
    let (first, second): (&[_], &[_]) = (&[('a', Err(1))], &[('b', Ok('B'))]);
    let steps = [(0, &[][..], "a"), (250, &[], "ab"), (0, first, "ab"), (0, second, "ab")];
    won("ab", None, &steps, 'B');
}

#[test]
fn all_failures_are_reported_in_their_order() {
    let (first, second): (&[_], &[_]) = (&[('b', Err(2))], &[('a', Err(1))]);
    let steps = [(0, &[][..], "a"), (250, &[], "ab"), (0, first, "ab"), (0, second, "ab")];
    let lost = lost("ab", None, &steps);
    assert_eq!(lost.failed, [('b', 2), ('a', 1)]);
    assert!(!lost.is_timeout());
}

#[test]
fn the_deadline_ends_the_race_with_the_state_of_every_attempt() {
    let steps: [Step; 3] = [(0, &[('a', Err(1))], "ab"), (250, &[], "abc"), (50, &[], "abc")];
    let lost = lost("abcd", Some(300), &steps);
    assert_eq!(lost.failed, [('a', 1)]);
    assert_eq!((lost.running, lost.waiting), (vec!['b', 'c'], vec!['d']));
    assert!(race("abcd", Some(300), &steps).1.contains('b'));
}

#[test]
fn a_ready_success_wins_over_a_passed_deadline() {
    won("ab", Some(0), &[(1, &[('a', Ok('A'))], "a")], 'A');
}

#[test]
fn a_race_without_candidates_fails() {
    let lost = lost("", None, &[(0, &[], "")]);
    assert!(lost.failed.is_empty() && !lost.is_timeout());
}

#[test]
fn families_take_turns_and_the_first_address_stays_first() {
    let check = |addresses: &str, expected: &str| {
        let addresses = addresses.split(' ').map(|ip| SocketAddr::new(ip.parse().unwrap(), 0));
        let order = interleave(&addresses.collect::<Vec<_>>());
        let order: Vec<_> = order.iter().map(|address| address.ip().to_string()).collect();
        assert_eq!(order.join(" "), expected);
    };
    check("::1 ::2 ::3 1.1.1.1 2.2.2.2", "::1 1.1.1.1 ::2 2.2.2.2 ::3");
    check("1.1.1.1 2.2.2.2 ::1", "1.1.1.1 ::1 2.2.2.2");
    check("1.1.1.1 ::1 1.1.1.1 ::1", "1.1.1.1 ::1");
    check("::1", "::1");
    assert!(interleave(&[]).is_empty());
}
