//! Histories of any kind: no invariant of the topology machine is broken, whatever happens.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sdam_model::world::History;

fuzz_target!(|history: History| {
    if let Err(broken) = history.play() {
        panic!("{broken}");
    }
});
