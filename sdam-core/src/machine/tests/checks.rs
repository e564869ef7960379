//! Effects of checks, and of handshakes, which count as checks.

use super::*;

#[test]
fn only_a_check_that_timed_out_interrupts_operations() {
    // F-50, F-65: a time-out interrupts the other connections; a broken connection does not.
    for kind in ErrorKind::ALL {
        let mut machine = opened(&options(&["a"]));
        let _ = check(&mut machine, "a", hello(ServerType::RsPrimary));
        let effects = fail(&mut machine, "a", *kind);
        let expected = match kind {
            ErrorKind::Timeout => "clear a to 1 interrupting",
            _ => "clear a to 1",
        };
        let cleared = brief(&machine, &effects)
            .into_iter()
            .filter(|effect| effect.starts_with("clear"));
        assert!(cleared.eq([expected.to_string()]), "{kind:?}: {effects:?}");
    }
}

#[test]
fn a_check_or_handshake_that_finds_a_usable_member_makes_its_pool_ready() {
    // F-62, F-80
    for by_handshake in [false, true] {
        let mut machine = opened(&options(&["a"]));
        let first = check(&mut machine, "a", hello(ServerType::RsOther));
        let is_ready = |effects: &Effects| {
            effects
                .iter()
                .any(|effect| matches!(effect, Effect::PoolReady { .. }))
        };
        assert!(!is_ready(&first));
        let news = hello(ServerType::RsSecondary);
        let effects = if by_handshake {
            let handshake = Input::Handshake {
                server: id(&machine, "a"),
                generation: Generation::FIRST,
                hello: news,
                rtt: RTT,
            };
            machine.handle(NOW, handshake)
        } else {
            check(&mut machine, "a", news)
        };
        assert!(is_ready(&effects), "{by_handshake}: {effects:?}");
    }
}
