//! Tests of requested checks, of waiting selections, and of look-ups.

use super::world::*;
use crate::{options::Srv, srv::SrvRecords};

#[test]
fn a_request_moves_the_timer_and_begins_no_check() {
    // `minHeartbeatFrequencyMS` is 500 ms.
    let mut world = World::open(&polled(&["a"]));
    let _ = world.check("a", standalone());
    let server = world.id("a");
    let request = |world: &mut World| world.handle(Input::CheckRequested { server });
    assert_eq!(world.deadline("a", false), Some(11_000));
    world.wait_until(1_100);
    assert_eq!(request(&mut world), ["wake a"]);
    assert_eq!(world.deadline("a", false), Some(1_500));
    assert!(request(&mut world).is_empty(), "it is no sooner");
    world.wait_until(1_500);
    let begun = world.due("a", false);
    assert_eq!(begun, ["ServerHeartbeatStarted a", "hello on a1"]);
    assert!(request(&mut world).is_empty(), "a running check ignores requests");
}

#[test]
fn waiting_selections_are_a_level_that_leaves_nothing_behind() {
    let mut world = World::open(&polled(&["a"]));
    let _ = world.check("a", standalone());
    assert_eq!(world.deadline("a", true), Some(1_500));
    world.wait_until(1_400);
    assert!(world.due("a", true).is_empty());
    assert_eq!(world.deadline("a", false), Some(11_000));
    world.wait_until(1_600);
    assert!(world.due("a", false).is_empty());
    assert_eq!(world.due("a", true), ["ServerHeartbeatStarted a", "hello on a1"]);
    assert_eq!(world.deadline("a", true), Some(2_600), "an answer is overdue");
}

#[test]
fn a_displaced_primary_is_woken_and_not_checked_in_the_call_of_the_new_one() {
    let mut world = World::open(&polled(&["a", "b"]));
    let _ = world.check("a", member(true, 1));
    world.wait_until(1_200);
    let outputs = world.check("b", member(true, 1));
    assert!(outputs.contains(&"wake a".into()), "{outputs:?}");
    assert!(!outputs.iter().any(|output| output.contains(" on a")));
    assert_eq!(world.deadline("a", false), Some(1_500));
}

#[test]
fn the_timer_that_is_due_first_is_named_first() {
    let mut world = World::open(&polled(&["a", "b"]));
    let [a, b] = ["a", "b"].map(|name| Timer::Server(world.id(name)));
    assert_eq!(world.deployment.due(world.now, false), Some(a));
    let _ = world.due("a", false);
    assert_eq!(world.deployment.due(world.now, false), Some(b));
    let _ = world.due("b", false);
    assert_eq!(world.deployment.due(world.now, true), None);
    let limit = Instant::from_millis(11_000);
    assert_eq!(world.deployment.deadline(true), Some(limit));
    assert_eq!(world.deployment.due(limit, false), Some(a));
}

#[test]
fn only_the_answer_to_an_outstanding_look_up_counts() {
    let mut options = polled(&["a.db.example.com"]);
    options.srv = Some(Srv::new("db.example.com"));
    let mut world = World::new(&options);
    assert_eq!(world.deployment.deadline_of(Timer::Srv, false), None);
    let _ = world.handle(Input::Open);
    let records = SrvRecords::new(vec![address("b.db.example.com")], Duration::ZERO);
    let failed = Error::network(Stage::Dns, "no answer");
    let answers = || [Ok(records.clone()), Err(failed.clone())].map(Input::LookedUp);
    let due = || Input::Due { timer: Timer::Srv, wanted: false };
    for minutes in 1..=2 {
        for input in answers().into_iter().chain([due()]) {
            assert!(world.handle(input).is_empty(), "nothing is outstanding or due");
        }
        world.wait_until(1_000 + 60_000 * minutes);
        assert_eq!(world.handle(due()), ["look up _mongodb._tcp.db.example.com"]);
        assert!(world.handle(due()).is_empty(), "one look-up at a time");
        let [found, _] = answers();
        if minutes == 1 {
            assert!(world.handle(found).contains(&"open b.db.example.com".into()));
        }
    }
    let _ = world.handle(Input::Close);
    for input in answers() {
        assert!(world.handle(input).is_empty(), "closed");
    }
}
