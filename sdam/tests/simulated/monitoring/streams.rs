//! Tests the awaited replies that monitors receive, either one per request or streamed.

use std::time::Duration;

use sdam::{ServerType, runtime::Instant};
use sdam_sim::{Action, MemberId};

use super::{Harness, Sent};

/// M-20: a server MAY stream. A server that needs a request for each reply reports changes just as
/// fast.
#[test]
fn a_server_that_does_not_stream_receives_a_request_for_each_awaited_reply() {
    // The member `b` is not the primary.
    let member = MemberId(1);
    for exhaust in [false, true] {
        let action = Action::Exhaust(member.into(), exhaust);
        let prepare = |sim: &sdam_sim::Sim| sim.apply(&action).unwrap();
        let harness = Harness::prepared(prepare, "a,b,c/?replicaSet=rs");
        assert_eq!(harness.server("b").server_type, ServerType::RsSecondary);
        harness.sim.run_for(Duration::from_secs(35));
        let before = harness.sim.now();
        harness.apply(&Action::StepUp(member.into()));
        harness.wait_for(|_| harness.server("b").server_type == ServerType::RsPrimary);
        let noticed = harness.sim.now().since(before);
        assert!(noticed < Duration::from_secs(1), "{noticed:?}");
        let checks = harness.checks("b", Instant::EPOCH);
        let awaited = checks.iter().filter(|(check, _)| check.awaited).count();
        assert!(awaited > 3, "{awaited}");
        let asked = harness.asked(member, Sent::is_awaitable);
        // Without streaming, the last request has no reply yet.
        assert_eq!(asked, if exhaust { 1 } else { awaited + 1 });
        harness.sim.block_on(harness.topology.close());
        assert_eq!((harness.sim.tasks(), harness.sim.connections()), (0, 0));
    }
}
