//! Short searches in the ordinary tests; `cargo xtask states` runs the long one.

use sdam_model::{alphabet, search::search, step::Step, world::Start};

#[test]
fn states_near_the_start_break_no_invariant() {
    let check = |alphabet: &[Step], most| {
        let visited = search(Start::DISCOVERY, alphabet, most).unwrap();
        assert!(visited.states >= most, "{visited:?}");
        assert!(visited.depth > 1, "{visited:?}");
    };
    check(&alphabet::elections(), 5000);
    check(&alphabet::membership(), 5000);
    check(&alphabet::errors(), 5000);
}

#[test]
fn a_direct_connection_has_few_states_and_none_breaks_an_invariant() {
    let start = Start {
        direct: true,
        named: true,
        ..Start::DISCOVERY
    };
    let visited = search(start, &alphabet::membership(), usize::MAX).unwrap();
    assert!(visited.complete && visited.states > 20, "{visited:?}");
}
