//! Awaited replies that monitors receive: one per request, or streamed without pause.

use std::time::Duration;

use sdam::{Instant, ServerType};
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
