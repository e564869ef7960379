//! Searches the states of small topologies for one that breaks an invariant.

use std::{process::ExitCode, time::Instant};

use sdam_model::{alphabet, checked::Start, search::search};

/// The maximum number of states for alphabets that cannot be searched completely.
const MAX_STATES: usize = 400_000;

fn main() -> ExitCode {
    let named = Start {
        named: true,
        ..Start::DISCOVERY
    };
    let direct = Start {
        direct: true,
        ..named
    };
    for (name, start, alphabet) in [
        ("elections", Start::DISCOVERY, alphabet::elections()),
        ("membership", Start::DISCOVERY, alphabet::membership()),
        ("membership, named", named, alphabet::membership()),
        ("membership, direct", direct, alphabet::membership()),
        ("errors", named, alphabet::errors()),
        ("everything", Start::DISCOVERY, alphabet::everything()),
    ] {
        let begin = Instant::now();
        match search(start, &alphabet, MAX_STATES) {
            Ok(visited) => println!(
                "{name}: {} states{}, {} steps, depth {}, {:.1?}",
                visited.states,
                if visited.complete {
                    ""
                } else {
                    " (limit reached)"
                },
                visited.steps,
                visited.depth,
                begin.elapsed(),
            ),
            Err(counterexample) => {
                eprint!("{name}: {counterexample}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
