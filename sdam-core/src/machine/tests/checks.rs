//! What failed checks lead to.

use super::*;

#[test]
fn only_a_check_that_timed_out_interrupts_operations() {
    // F-50, F-65: a broken connection says nothing about the others, silence does.
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
