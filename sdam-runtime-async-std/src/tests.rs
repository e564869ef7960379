//! Runs the conformance suite against the runtime.

use sdam_testkit::conformance;

#[test]
fn runtime_keeps_its_contracts() {
    let runtime = super::runtime();
    conformance::runtime(&runtime);
    conformance::dial(super::AsyncStdDial, runtime.backend.clock);
}
