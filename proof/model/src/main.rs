//! Searches the reachable states of small deployments for violated invariants.

use std::{process::ExitCode, time::Instant};

use sdam_model::{
    alphabet,
    search::search,
    start::{Mode, Start},
    step::Step,
};

/// A search: its name, start and steps, and its default limit on the number of states.
type Search = (&'static str, Start, Vec<Step>, usize);

fn searches() -> Vec<Search> {
    let polled = Start::DISCOVERY;
    let named = Start { named: true, ..polled };
    let direct = Start { direct: true, ..named };
    let two = Start { seeds: 0b011, ..named };
    let one = Start { seeds: 0b001, ..Start::STREAMING };
    let inline = Start { mode: Mode::Inline, ..Start::BALANCED };
    // A search that is run by name may be given another limit.
    let (all, some) = (usize::MAX, 50_000);
    vec![
        ("elections", polled, alphabet::elections(), all),
        ("membership", polled, alphabet::membership(), all),
        ("membership, named", named, alphabet::membership(), some / 2),
        ("membership, direct", direct, alphabet::membership(), all),
        ("errors", named, alphabet::errors(), some),
        ("one server", one, alphabet::one_server(), all),
        ("silence", two, alphabet::silence(), 2 * some),
        ("trial", Start::DETECTING, alphabet::trial(), 6 * some),
        ("inline", Start::INLINE, alphabet::inline(1), all),
        ("inline, two", Start { seeds: 0b011, ..Start::INLINE }, alphabet::inline(2), some / 2),
        ("balanced", Start::BALANCED, alphabet::balanced(2), all),
        ("balanced, inline", inline, alphabet::balanced_inline(), all),
        ("srv", Start::SRV, alphabet::srv(), some / 5),
    ]
}

/// Runs the search that the arguments name, with a maximum number of states if they contain one.
/// Without arguments, runs all searches.
fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let only = arguments.next();
    let states = arguments.next().and_then(|states| states.parse().ok());
    let mut chosen = searches();
    if let Some(only) = &only {
        chosen.retain(|(name, ..)| name == only);
        if chosen.is_empty() {
            eprintln!("no search is called `{only}`");
            return ExitCode::FAILURE;
        }
    }
    let (count, mut ended, mut states_sum, mut steps) = (chosen.len(), 0, 0, 0);
    for (name, start, alphabet, max_states) in chosen {
        let begin = Instant::now();
        match search(start, &alphabet, states.unwrap_or(max_states)) {
            Ok(visited) => {
                println!(
                    "{name}: {} states{}, {} steps, depth {}, {:.1?}",
                    visited.states,
                    if visited.complete { "" } else { " (limit reached)" },
                    visited.steps,
                    visited.depth,
                    begin.elapsed(),
                );
                ended += usize::from(visited.complete);
                states_sum += visited.states;
                steps += visited.steps;
            }
            Err(counterexample) => {
                eprint!("broken {name}: {counterexample}");
                return ExitCode::FAILURE;
            }
        }
    }
    println!(
        "states: {states_sum} states and {steps} steps in {count} searches, {ended} to their end"
    );
    ExitCode::SUCCESS
}
