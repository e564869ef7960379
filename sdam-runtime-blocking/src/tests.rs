//! Runs the conformance suite with futures that are never pending.

use sdam_testkit::conformance;
use sdam_transport::system::Epoch;

use super::{BlockingDial, backend, clock};

#[test]
fn io_keeps_its_contracts_and_is_never_pending() {
    conformance::blocking(&backend());
    let epoch = Epoch::begin();
    conformance::dial(BlockingDial { epoch }, clock(epoch));
}
