//! Tests of inline mode.

use super::world::*;

const STARTED: &str = "ServerHeartbeatStarted a";

fn scan(world: &mut World, request: ScanRequest) -> Vec<String> {
    world.handle(Input::Scan(request))
}

/// Opens a deployment whose only server is `a`, and scans it.
fn scanned(immediate_check: bool) -> World {
    let mut options = polled(&["a"]);
    options.deviations.single_threaded_immediate_check = immediate_check;
    let mut world = World::inline(&options);
    assert!(world.deployment.is_stale(world.now));
    assert_eq!(world.deployment.last_scan(), None);
    assert_eq!(scan(&mut world, ScanRequest::Scan), [STARTED, "connect a1"]);
    let conn = world.conn("a", Role::Check);
    assert_eq!(world.connected(conn), ["hello on a1"]);
    world.wait_until(1_010);
    let outputs = world.reply(conn, standalone(), false);
    assert_eq!(outputs.last().unwrap(), "finish Ok(None)", "{outputs:?}");
    world
}

fn stepped_down() -> ErrorReport {
    let error = Error::new(ErrorKind::Command, Stage::Operation, "stepped down").with_code(10_107);
    ErrorReport::new(Generation::FIRST, error)
}

#[test]
fn a_scan_checks_and_finishes_and_its_end_is_remembered() {
    let mut world = scanned(false);
    assert_eq!(world.deployment.last_scan(), Some(world.now));
    assert!(!world.deployment.is_stale(world.now));
    assert_eq!(world.deployment.deadline_of(Timer::Scan, false), None);
    let _ = world.error("a", &stepped_down());
    assert!(world.deployment.is_stale(world.now));
    assert_eq!(scan(&mut world, ScanRequest::Settle), ["finish Ok(None)"]);
}

#[test]
fn a_lost_server_is_checked_at_the_next_request_and_not_twice() {
    let mut world = scanned(true);
    let (outcome, outputs) = world.error("a", &stepped_down());
    assert_eq!(outcome, ErrorOutcome::MarkedUnknown);
    assert!(!outputs.contains(&"hello on a1".into()), "{outputs:?}");
    let begun = scan(&mut world, ScanRequest::Settle);
    assert!(begun.is_empty(), "the check must wait: {begun:?}");
    let at = world.deployment.deadline_of(Timer::Scan, false);
    assert_eq!(at, Some(Instant::from_millis(1_510)));
    world.wait_until(1_510);
    let due = Input::Due { timer: Timer::Scan, wanted: false };
    assert_eq!(world.handle(due), [STARTED, "hello on a1"]);
    let conn = world.conn("a", Role::Check);
    let outputs = world.reply(conn, standalone(), false);
    assert_eq!(outputs.last().unwrap(), "finish Ok(None)", "{outputs:?}");
    assert_eq!(scan(&mut world, ScanRequest::Settle), ["finish Ok(None)"]);
}

#[test]
fn a_check_without_answer_fails_at_its_deadline_and_one_left_unattended_is_repeated() {
    for late in [false, true] {
        let mut world = World::inline(&polled(&["a"]));
        let _ = scan(&mut world, ScanRequest::Scan);
        let deadline = world.deployment.deadline_of(Timer::Scan, false).unwrap();
        world.now = deadline;
        if late {
            // The caller does not return until the deadline has passed, and then makes a new
            // request.
            let _ = scan(&mut world, ScanRequest::Scan);
        }
        let outputs = world.handle(Input::Due { timer: Timer::Scan, wanted: false });
        let has = |name: &str| outputs.iter().any(|output| output == name);
        assert_eq!(has("TopologyDescriptionChanged"), !late, "{outputs:?}");
        assert_eq!(has(STARTED), late, "{outputs:?}");
    }
}

#[test]
fn a_closed_deployment_waits_for_nothing() {
    let mut world = World::inline(&polled(&["a"]));
    let _ = scan(&mut world, ScanRequest::Scan);
    assert!(world.deployment.deadline_of(Timer::Scan, false).is_some());
    let _ = world.handle(Input::Close);
    assert_eq!(world.deployment.deadline_of(Timer::Scan, false), None);
}
