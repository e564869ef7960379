//! Attempts that race each other.

use super::*;
use Outcome::{FailAfter, Open, OpenAfter, Silent};

/// Connects to a host with an address for each outcome, from `10.0.0.1` on. Checks when the attempts
/// begin, in milliseconds, which of them are dropped, and how the race ends.
#[track_caller]
fn race(outcomes: &[Outcome], begun: &[u64], dropped: &[&str], end: Result<(), &str>) {
    let addresses = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"];
    let mut dial = dial(&[("a", &addresses[..outcomes.len()])], &[]);
    let targets = addresses.map(|address| format!("{address}:1")).into_iter();
    dial.fates = targets.zip(outcomes.iter().copied()).collect();
    let outcome = connect(&dial, "a:1");
    let dialled = dial.dialled.lock().unwrap();
    let at: Vec<_> = dialled.iter().map(|dialled| dialled.at).collect();
    assert_eq!(at, begun.iter().copied().map(Instant::from_millis).collect::<Vec<_>>());
    assert_eq!(*dial.dropped.lock().unwrap(), dropped);
    assert_eq!(outcome.as_ref().map_err(Error::message).copied(), end);
}

#[test]
fn attempts_begin_one_by_one_and_the_first_success_drops_the_others() {
    let late = "connecting timed out: 10.0.0.1:1: no reply; 10.0.0.2:1: no reply";
    race(&[Silent; 2], &[0, 250], &["10.0.0.1:1", "10.0.0.2:1"], Err(late));
    race(&[Silent, OpenAfter(50), Open], &[0, 250], &["10.0.0.1:1"], Ok(()));
    // Of simultaneous successes, the earlier attempt wins.
    race(&[OpenAfter(300), OpenAfter(50)], &[0, 250], &["10.0.0.2:1"], Ok(()));
}

#[test]
fn a_failure_starts_the_next_attempt_at_once_and_leaves_running_ones_alone() {
    // The delay counts from the start of an attempt.
    race(&[REFUSED, Silent, Open], &[0, 0, 250], &["10.0.0.2:1"], Ok(()));
    race(&[FailAfter(260), OpenAfter(50)], &[0, 250], &[], Ok(()));
    let order = "could not connect: 10.0.0.2:1: connection refused; 10.0.0.1:1: connection refused";
    race(&[FailAfter(300), FailAfter(20)], &[0, 250], &[], Err(order));
}

#[test]
fn the_deadline_ends_the_race_with_the_state_of_every_attempt() {
    let (refused, silent) = ("10.0.0.1:1: connection refused", "10.0.0.2:1: no reply");
    let others = "10.0.0.3:1: no reply; 10.0.0.4:1: no reply; 10.0.0.5:1: no reply";
    let error =
        format!("connecting timed out: {refused}; {silent}; {others}; 10.0.0.6:1: not tried");
    let outcomes = [REFUSED, Silent, Silent, Silent, Silent, Open];
    let dropped = ["10.0.0.2:1", "10.0.0.3:1", "10.0.0.4:1", "10.0.0.5:1"];
    race(&outcomes, &[0, 0, 250, 500, 750], &dropped, Err(&error));
}

#[test]
fn what_is_ready_wins_over_a_deadline_that_has_passed() {
    let dial = dial(&[("a", &["10.0.0.1"])], &[("10.0.0.1:1", OpenAfter(50))]);
    let tls = Arc::<layers::FakeTls>::default();
    let transport = NetTransport::new(dial.clone(), Arc::new(dial.clock.clone()));
    let transport = transport.with_layers(layers::encrypted(&tls)).unwrap();
    let target = ServerAddress::new("a", 1);
    let mut connect = transport.connect(&target, Some(Instant::from_millis(20)));
    assert!(connect.as_mut().now_or_never().is_none());
    dial.clock.advance(Duration::from_millis(50));
    connect.now_or_never().unwrap().unwrap();
}

#[test]
fn families_take_turns_and_the_first_address_stays_first() {
    let check = |addresses: &'static str, expected: &str| {
        let mut dial = dial(&[("a", &addresses.split(' ').collect::<Vec<_>>())], &[]);
        dial.fates = expected.split(' ').map(|target| (target.to_owned(), REFUSED)).collect();
        connect(&dial, "a:1").unwrap_err();
        assert_eq!(dialled(&dial), expected);
    };
    check("::1 ::2 ::3 1.1.1.1 2.2.2.2", "[::1]:1 1.1.1.1:1 [::2]:1 2.2.2.2:1 [::3]:1");
    check("1.1.1.1 2.2.2.2 ::1", "1.1.1.1:1 [::1]:1 2.2.2.2:1");
    check("1.1.1.1 ::1 1.1.1.1 ::1", "1.1.1.1:1 [::1]:1");
    check("::1", "[::1]:1");
}
