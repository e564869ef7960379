//! Checks that no sequence of inputs breaks an invariant of a deployment.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sdam_model::world::History;

fuzz_target!(|history: History| {
    if let Err(broken) = history.run() {
        panic!("{broken}");
    }
});
