//! Arbitrary histories: no input breaks an invariant of the topology machine.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sdam_model::checked::History;

fuzz_target!(|history: History| {
    if let Err(broken) = history.run() {
        panic!("{broken}");
    }
});
