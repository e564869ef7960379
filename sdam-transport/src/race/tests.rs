use std::{
    cell::RefCell,
    collections::BTreeMap,
    rc::Rc,
    task::{Context, Waker},
    thread,
};

use futures::{FutureExt as _, channel::oneshot};
use sdam_core::time::UnixTime;

use super::*;
use crate::{
    system::{Epoch, ThreadClock},
    testing::ManualClock,
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
    assert_eq!(poll(&mut raced), Poll::Ready(Err(Elapsed)));
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
    assert_eq!(raced, Some(Err(Elapsed)));
    assert!(Some(clock.now()) >= soon);
}

/// The scripted results and the log of a race's attempts.
#[derive(Clone, Default)]
struct Network {
    begun: Rc<RefCell<Vec<char>>>,
    dropped: Rc<RefCell<Vec<char>>>,
    outcomes: Rc<RefCell<BTreeMap<char, Result<char, i32>>>>,
}

/// Records that the attempt with this name was dropped.
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

    fn settle(&self, name: char, outcome: Result<char, i32>) {
        self.outcomes.borrow_mut().insert(name, outcome);
    }

    fn begun(&self) -> String {
        self.begun.borrow().iter().collect()
    }
}

/// Starts the race of `candidates` in `$network` on `$clock`, pinned as `$race`.
macro_rules! race {
    ($race:ident, $clock:ident, $network:ident, $deadline:expr, $candidates:expr) => {
        let ($clock, $network) = (ManualClock::default(), Network::default());
        let mut $race = pin!(happy_eyeballs(
            &$clock,
            ATTEMPT_DELAY,
            $deadline,
            $candidates.chars().collect(),
            |name| $network.attempt(*name),
        ));
    };
}

#[test]
fn attempts_start_one_by_one_after_the_delay() {
    race!(race, clock, network, None, "abc");
    assert!(poll(&mut race).is_pending());
    assert_eq!(network.begun(), "a");
    clock.advance(Duration::from_millis(249));
    assert!(poll(&mut race).is_pending());
    assert_eq!(network.begun(), "a");
    clock.advance(Duration::from_millis(1));
    assert!(poll(&mut race).is_pending());
    assert_eq!(network.begun(), "ab");
    clock.advance(Duration::from_millis(250));
    assert!(poll(&mut race).is_pending());
    assert_eq!(network.begun(), "abc");
    // No attempt follows the last candidate's.
    clock.advance(Duration::from_secs(10));
    assert!(poll(&mut race).is_pending());
}

#[test]
fn the_first_success_wins_and_the_others_are_dropped() {
    race!(race, clock, network, None, "abc");
    assert!(poll(&mut race).is_pending());
    clock.advance(Duration::from_millis(250));
    assert!(poll(&mut race).is_pending());
    network.settle('b', Ok('B'));
    match poll(&mut race) {
        Poll::Ready(Ok(winner)) => assert_eq!(winner, 'B'),
        _ => panic!("b has answered"),
    }
    assert_eq!(network.begun(), "ab");
    assert_eq!(network.dropped.borrow().len(), 2);
}

#[test]
fn of_simultaneous_successes_the_earlier_attempt_wins() {
    race!(race, clock, network, None, "ab");
    assert!(poll(&mut race).is_pending());
    clock.advance(Duration::from_millis(250));
    assert!(poll(&mut race).is_pending());
    network.settle('b', Ok('B'));
    network.settle('a', Ok('A'));
    assert!(matches!(poll(&mut race), Poll::Ready(Ok('A'))));
}

#[test]
fn a_failure_starts_the_next_attempt_immediately() {
    race!(race, clock, network, None, "abc");
    network.settle('a', Err(1));
    assert!(poll(&mut race).is_pending());
    assert_eq!(network.begun(), "ab");
    // The delay counts from the start of the attempt.
    clock.advance(Duration::from_millis(249));
    assert!(poll(&mut race).is_pending());
    assert_eq!(network.begun(), "ab");
    clock.advance(Duration::from_millis(1));
    assert!(poll(&mut race).is_pending());
    assert_eq!(network.begun(), "abc");
}

#[test]
fn a_late_failure_does_not_affect_running_attempts() {
    race!(race, clock, network, None, "ab");
    assert!(poll(&mut race).is_pending());
    clock.advance(Duration::from_millis(250));
    assert!(poll(&mut race).is_pending());
    network.settle('a', Err(1));
    assert!(poll(&mut race).is_pending());
    network.settle('b', Ok('B'));
    assert!(matches!(poll(&mut race), Poll::Ready(Ok('B'))));
}

#[test]
fn all_failures_are_reported_in_their_order() {
    race!(race, clock, network, None, "ab");
    assert!(poll(&mut race).is_pending());
    clock.advance(Duration::from_millis(250));
    assert!(poll(&mut race).is_pending());
    network.settle('b', Err(2));
    assert!(poll(&mut race).is_pending());
    network.settle('a', Err(1));
    let Poll::Ready(Err(lost)) = poll(&mut race) else {
        panic!("both have failed");
    };
    assert_eq!(lost.failed, [('b', 2), ('a', 1)]);
    assert!(!lost.is_timeout());
}

#[test]
fn the_deadline_ends_the_race_with_the_state_of_every_attempt() {
    let at_300 = Some(Instant::from_millis(300));
    race!(race, clock, network, at_300, "abcd");
    network.settle('a', Err(1));
    assert!(poll(&mut race).is_pending());
    clock.advance(Duration::from_millis(250));
    assert!(poll(&mut race).is_pending());
    clock.advance(Duration::from_millis(50));
    let Poll::Ready(Err(lost)) = poll(&mut race) else {
        panic!("the deadline has passed");
    };
    assert_eq!(lost.failed, [('a', 1)]);
    assert_eq!((lost.running, lost.waiting), (vec!['b', 'c'], vec!['d']));
    assert!(network.dropped.borrow().contains(&'b'));
}

#[test]
fn a_ready_success_wins_over_a_passed_deadline() {
    race!(race, clock, network, Some(Instant::EPOCH), "ab");
    clock.advance(Duration::from_millis(1));
    network.settle('a', Ok('A'));
    assert!(matches!(poll(&mut race), Poll::Ready(Ok('A'))));
}

#[test]
fn a_race_without_candidates_fails() {
    race!(race, _clock, network, None, "");
    let Poll::Ready(Err(lost)) = poll(&mut race) else {
        panic!("the race is not ready");
    };
    assert!(lost.failed.is_empty() && !lost.is_timeout());
    assert_eq!(network.begun(), "");
}

#[test]
fn families_take_turns_and_the_first_address_stays_first() {
    let check = |addresses: &str, expected: &str| {
        let addresses: Vec<IpAddr> = addresses.split(' ').map(|a| a.parse().unwrap()).collect();
        let order: Vec<_> = interleave(&addresses).iter().map(IpAddr::to_string).collect();
        assert_eq!(order.join(" "), expected);
    };
    check("::1 ::2 ::3 1.1.1.1 2.2.2.2", "::1 1.1.1.1 ::2 2.2.2.2 ::3");
    check("1.1.1.1 2.2.2.2 ::1", "1.1.1.1 ::1 2.2.2.2");
    check("1.1.1.1 ::1 1.1.1.1 ::1", "1.1.1.1 ::1");
    check("::1", "::1");
    assert!(interleave(&[]).is_empty());
}
