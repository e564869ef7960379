use std::sync::Arc;

use loom::{
    future::block_on,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};
use sdam_events::sync::explore;

use crate::topology::tasks::Tasks;

/// Data without an order of its own: a thread sees it only if something else makes it visible.
#[derive(Debug, Default)]
struct Work([AtomicBool; 3]);

impl Work {
    fn finish(&self, part: usize) {
        self.0[part].store(true, Ordering::Relaxed);
    }

    fn is_finished(&self) -> bool {
        self.0.iter().all(|part| part.load(Ordering::Relaxed))
    }
}

/// Runs a task on a thread that finishes `part` of the work. Returns whether no task was left after
/// the closing, in which case the task has seen all work.
fn task(tasks: &Arc<Tasks>, work: &Arc<Work>, part: usize) -> thread::JoinHandle<bool> {
    tasks.begin();
    let (tasks, work) = (Arc::clone(tasks), Arc::clone(work));
    thread::spawn(move || {
        work.finish(part);
        let is_last = tasks.end();
        assert!(!is_last || work.is_finished());
        is_last
    })
}

#[test]
fn a_caller_that_waited_for_the_tasks_sees_what_they_did() {
    explore(3, || {
        let (tasks, work) = (Arc::<Tasks>::default(), Arc::<Work>::default());
        work.finish(0);
        let running = [1, 2].map(|part| task(&tasks, &work, part));
        block_on(tasks.finished());
        assert!(work.is_finished());
        for task in running {
            assert!(!task.join().unwrap(), "the tasks are not closed");
        }
    });
}

#[test]
fn either_the_closing_or_the_last_end_finds_no_task_and_sees_what_all_did() {
    explore(None, || {
        let (tasks, work) = (Arc::<Tasks>::default(), Arc::<Work>::default());
        let running = [1, 2].map(|part| task(&tasks, &work, part));
        work.finish(0);
        let is_last = tasks.close();
        assert!(!is_last || work.is_finished());
        let ends = running.map(|task| usize::from(task.join().unwrap()));
        assert_eq!(usize::from(is_last) + ends.iter().sum::<usize>(), 1);
    });
}
