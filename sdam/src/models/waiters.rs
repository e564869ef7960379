use std::sync::Arc;

use loom::thread;
use sdam_events::sync::explore;

use crate::select::waiters::Waiters;

#[test]
fn waiting_selections_never_exceed_the_limit_and_none_is_counted_at_the_end() {
    // The number of waiting selections is limited (L-64).
    explore(None, || {
        let waiters = Arc::new(Waiters::default());
        let wait = |waiters: &Waiters| {
            let entry = waiters.enter(1);
            assert!(waiters.count() <= 1);
            if let Some((_, first)) = &entry {
                assert!(first, "two selections entered, although the limit is one");
                assert!(waiters.any());
            }
        };
        let other = {
            let waiters = Arc::clone(&waiters);
            thread::spawn(move || wait(&waiters))
        };
        wait(&waiters);
        other.join().unwrap();
        assert!(!waiters.any());
        assert_eq!(waiters.count(), 0);
    });
}
