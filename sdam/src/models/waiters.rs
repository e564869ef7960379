use std::sync::Arc;

use loom::thread;
use sdam_events::sync::explore;

use crate::demand::Waiters;

#[test]
fn no_more_wait_than_may_and_none_is_counted_in_the_end() {
    // L-64
    explore(None, || {
        let demand = Arc::new(Waiters::default());
        let wait = |demand: &Waiters| {
            let ticket = demand.ticket(1);
            assert!(demand.waiters() <= 1);
            if let Some((_, first)) = &ticket {
                assert!(first, "the other one was there, and was let in, too");
                assert!(demand.any());
            }
        };
        let other = {
            let demand = Arc::clone(&demand);
            thread::spawn(move || wait(&demand))
        };
        wait(&demand);
        other.join().unwrap();
        assert!(!demand.any());
        assert_eq!(demand.waiters(), 0);
    });
}
