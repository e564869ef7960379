//! Awaited replies that monitors receive: one per request, or streamed without pause.

use std::time::Duration;

use sdam::{Criteria, Instant, ServerType};
use sdam_sim::{Action, MemberId};

use super::{Harness, Sent};

/// The member `b`, whose behaviour the tests change; it is not the primary.
const MEMBER: MemberId = MemberId(1);

fn start(exhaust: bool) -> Harness {
    let action = Action::Exhaust(MEMBER.into(), exhaust);
    let prepare = |sim: &sdam_sim::Sim| sim.apply(&action).unwrap();
    let harness = Harness::prepared(prepare, "a,b,c/?replicaSet=rs");
    assert_eq!(harness.server("b").server_type, ServerType::RsSecondary);
    harness
}

fn end(harness: &Harness) {
    harness.sim.block_on(harness.topology.close());
    assert_eq!((harness.sim.tasks(), harness.sim.connections()), (0, 0));
}

/// M-20: a server MAY stream; one that needs a request for each reply reports changes just as fast.
#[test]
fn a_server_that_does_not_stream_receives_a_request_for_each_awaited_reply() {
    for exhaust in [false, true] {
        let harness = start(exhaust);
        harness.sim.run_for(Duration::from_secs(35));
        let before = harness.sim.now();
        harness.apply(&Action::StepUp(MEMBER.into()));
        harness.wait_for(|_| harness.server("b").server_type == ServerType::RsPrimary);
        let noticed = harness.sim.now().since(before);
        assert!(noticed < Duration::from_secs(1), "{noticed:?}");
        let checks = harness.checks("b", Instant::EPOCH);
        let awaited = checks.iter().filter(|(check, _)| check.awaited).count();
        assert!(awaited > 3, "{awaited}");
        let asked = harness.asked(MEMBER, Sent::is_awaitable);
        // The last request has no reply yet.
        assert_eq!(asked, if exhaust { 1 } else { awaited + 1 });
        end(&harness);
    }
}

/// A server that reports a change a thousand times a second causes a bounded amount of work, stays
/// known, and delays no other server.
#[test]
fn replies_of_a_server_that_streams_without_pause_are_read_at_a_bounded_rate() {
    let harness = start(true);
    let flood = |every| harness.apply(&Action::Flood(MEMBER.into(), every));
    let (before, mark) = (harness.sim.now(), harness.events().len());
    flood(Some(Duration::from_millis(1)));
    harness.sim.run_for(Duration::from_secs(20));
    let pushed = harness.checks("b", before).len();
    // A burst of replies is read, and then twenty replies per second.
    assert!((100..=50 + 20 * 20).contains(&pushed), "{pushed}");
    // Each reply causes server, topology and heartbeat events.
    let count = harness.events().len() - mark;
    assert!(count < 6 * pushed + 200, "{count}");
    for host in ["a", "c"] {
        let others = harness.checks(host, before).len();
        assert!((1..10).contains(&others), "{host}: {others}");
    }
    let criteria = Criteria::write();
    let selected = harness.sim.block_on(harness.topology.select(&criteria));
    drop(selected.unwrap());
    // A change is seen in time, although replies are read with pauses.
    harness.apply(&Action::StepUp(MEMBER.into()));
    harness.sim.run_for(Duration::from_secs(1));
    assert_eq!(harness.server("b").server_type, ServerType::RsPrimary);
    flood(None);
    end(&harness);
}
