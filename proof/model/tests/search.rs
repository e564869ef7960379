//! Short searches. `cargo xtask states` runs the long ones.

use sdam_model::{
    alphabet,
    search::search,
    start::{Mode, Start},
    step::{Kind, Link, MemberStep, OperationError, Reply, Role, Step},
    world::{History, World},
};

#[test]
#[ignore = "deep: searches"]
fn states_near_the_start_break_no_invariant() {
    let check = |start, alphabet: &[Step], most| {
        let visited = search(start, alphabet, most).unwrap();
        assert!(visited.states >= most, "{visited:?}");
        assert!(visited.depth > 1, "{visited:?}");
    };
    check(Start::DISCOVERY, &alphabet::elections(), 2000);
    check(Start::DISCOVERY, &alphabet::membership(), 2000);
    check(Start::DISCOVERY, &alphabet::errors(), 2000);
    // Checks begin and end in time, and failed checks and operation errors have the effects that
    // SDAM specifies (F-10, F-11, F-35, F-40, F-41, F-44, F-50, F-51, F-62, F-64, F-71, F-72, G-7).
    let one = Start { seeds: 0b001, ..Start::STREAMING };
    check(one, &alphabet::one_server(), 2000);
    // Monitors do not delay each other (F-1).
    let two = Start { named: true, seeds: 0b011, ..Start::DISCOVERY };
    check(two, &alphabet::silence(), 2000);
    check(Start::DETECTING, &alphabet::trial(), 2000);
    // Checks run only on request, one at a time, and not too often (H-1, H-5, F-41).
    check(Start::INLINE, &alphabet::inline(1), 2000);
    // Errors affect only the service, never the load balancer (D-12, F-67, I-3, I-50 to I-53,
    // J-21).
    check(Start::BALANCED, &alphabet::balanced(2), 1000);
    // A load balancer is never scanned (H-14).
    let inline = Start { mode: Mode::Inline, ..Start::BALANCED };
    check(inline, &alphabet::balanced_inline(), 500);
    // SRV records are polled regularly, and more often after a failed look-up (N-21, N-23).
    check(Start::SRV, &alphabet::srv(), 1000);
}

#[test]
fn a_direct_connection_has_few_states_and_none_breaks_an_invariant() {
    let start = Start { direct: true, named: true, ..Start::DISCOVERY };
    let visited = search(start, &alphabet::membership(), usize::MAX).unwrap();
    assert!(visited.complete && visited.states > 20, "{visited:?}");
}

#[test]
fn every_step_of_an_alphabet_can_be_taken_somewhere() {
    let check = |start, alphabet: Vec<Step>| {
        let mut rest = alphabet.clone();
        let mut rng = sdam_core::rng::Rng::new(1);
        for _ in 0..600 {
            if rest.is_empty() {
                return;
            }
            let mut world = World::new(start).unwrap();
            for _ in 0..60 {
                let mut possible: Vec<_> = alphabet.iter().filter(|own| world.can(**own)).collect();
                // Half of the steps are answers. With fewer answers, connections would rarely
                // survive.
                let is_answer =
                    |step: &&Step| matches!(step, Step::Connected(_) | Step::Answer { .. });
                if rng.below(2) == 0 && possible.iter().any(is_answer) {
                    possible.retain(is_answer);
                }
                let drawn = rng.below(possible.len() as u64);
                let step = *possible[drawn as usize];
                assert!(world.apply(step).unwrap());
                rest.retain(|own| *own != step);
            }
        }
        panic!("{rest:?}");
    };
    for alphabet in [alphabet::elections(), alphabet::membership(), alphabet::errors()] {
        check(Start::DISCOVERY, alphabet);
    }
    let one = Start { seeds: 0b001, ..Start::STREAMING };
    check(one, alphabet::one_server());
    check(Start { named: true, seeds: 0b011, ..Start::DISCOVERY }, alphabet::silence());
    check(Start::DETECTING, alphabet::trial());
    check(Start::INLINE, alphabet::inline(1));
    let inline = Start { mode: Mode::Inline, ..Start::BALANCED };
    check(inline, alphabet::balanced_inline());
    check(Start::BALANCED, alphabet::balanced(2));
    check(Start::SRV, alphabet::srv());
}

#[test]
fn a_history_runs_to_its_end() {
    let start = Start { seeds: 0b001, ..Start::STREAMING };
    let history = History { start, steps: alphabet::one_server() };
    history.run().unwrap();
}

#[test]
fn the_pong_of_a_server_that_a_stale_reply_left_unknown_wakes_nobody() {
    let reply = Reply { hosts: 0b001, version: 1, ..Reply::member(Role::Primary) };
    let link = |kind| Link { on: 0, kind };
    let answer = |kind| Step::Answer { link: link(kind), reply, more: false };
    let due = Step::Member(0, MemberStep::Due { wanted: false });
    let error = OperationError::ShuttingDown(2);
    let steps = vec![
        due,
        Step::Connected(link(Kind::Check)),
        Step::Member(0, MemberStep::Error { error, late: false }),
        answer(Kind::Check),
        due,
        Step::Connected(link(Kind::Ping)),
        answer(Kind::Ping),
    ];
    let start = Start { seeds: 0b001, ..Start::STREAMING };
    History { start, steps }.run().unwrap();
}
