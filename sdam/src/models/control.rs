use std::{future::poll_fn, sync::Arc};

use loom::{future::block_on, sync::Mutex, thread};
use sdam_core::ids::Generation;
use sdam_events::sync::explore;

use crate::engine::control::{MonitorControl, Signals};

fn receive(control: &MonitorControl) -> Signals {
    block_on(poll_fn(|cx| control.poll(cx)))
}

#[test]
fn a_sleeping_task_receives_every_kind_of_signal() {
    // F-72
    explore(3, || {
        let control = Arc::new(MonitorControl::default());
        let posts: [fn(&MonitorControl); 2] = [MonitorControl::check, |control| {
            control.cancel(Generation::from_u64(1));
        }];
        for post in posts {
            let control = Arc::clone(&control);
            thread::spawn(move || post(&control));
        }
        let (mut checked, mut cancelled) = (false, None);
        while !checked || cancelled.is_none() {
            let signals = receive(&control);
            checked |= signals.check;
            cancelled = cancelled.or(signals.cancel);
            assert!(!signals.stop);
        }
        assert_eq!(cancelled, Some(Generation::from_u64(1)));
    });
}

#[test]
fn the_last_cancellation_arrives_with_its_generation() {
    // F-71: a cancellation that names an earlier generation would spare the check it is meant for.
    explore(3, || {
        let control = Arc::new(MonitorControl::default());
        let latest = Arc::new(Mutex::new(Generation::FIRST));
        for _ in 0..2 {
            let (control, latest) = (Arc::clone(&control), Arc::clone(&latest));
            thread::spawn(move || {
                // Stands for the topology lock.
                let mut latest = latest.lock().unwrap();
                *latest = latest.next();
                control.cancel(*latest);
            });
        }
        let last = Generation::FIRST.next().next();
        let mut seen = Generation::FIRST;
        while seen != last {
            let generation = receive(&control).cancel.unwrap();
            assert!(seen < generation || generation == last);
            seen = generation;
        }
    });
}

#[test]
fn a_stop_is_visible_to_every_later_poll() {
    explore(3, || {
        let control = Arc::new(MonitorControl::default());
        for post in [MonitorControl::stop, MonitorControl::check] {
            let control = Arc::clone(&control);
            thread::spawn(move || post(&control));
        }
        while !receive(&control).stop {}
        assert!(control.is_stopped());
        assert!(receive(&control).stop);
    });
}
