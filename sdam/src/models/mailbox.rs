use std::{future::poll_fn, sync::Arc};

use loom::{future::block_on, sync::Mutex, thread};
use sdam_core::ids::Generation;
use sdam_events::sync::explore;

use crate::mailbox::{Mail, Mailbox};

fn receive(mailbox: &Mailbox) -> Mail {
    block_on(poll_fn(|cx| mailbox.poll(cx)))
}

#[test]
fn a_task_that_sleeps_sees_every_kind_of_word() {
    // F-72
    explore(3, || {
        let mailbox = Arc::new(Mailbox::default());
        let posts: [fn(&Mailbox); 2] = [Mailbox::check, |mailbox| {
            mailbox.cancel(Generation::from_u64(1));
        }];
        for post in posts {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || post(&mailbox));
        }
        let (mut checked, mut cancelled) = (false, None);
        while !checked || cancelled.is_none() {
            let mail = receive(&mailbox);
            checked |= mail.check;
            cancelled = cancelled.or(mail.cancel);
            assert!(!mail.stop);
        }
        assert_eq!(cancelled, Some(Generation::from_u64(1)));
    });
}

#[test]
fn the_last_cancellation_arrives_with_its_generation() {
    // F-71: a cancellation that names an earlier generation would spare the check it is meant for.
    explore(3, || {
        let mailbox = Arc::new(Mailbox::default());
        let latest = Arc::new(Mutex::new(Generation::FIRST));
        for _ in 0..2 {
            let (mailbox, latest) = (Arc::clone(&mailbox), Arc::clone(&latest));
            thread::spawn(move || {
                // Stands for the topology lock.
                let mut latest = latest.lock().unwrap();
                *latest = latest.next();
                mailbox.cancel(*latest);
            });
        }
        let last = Generation::FIRST.next().next();
        let mut seen = Generation::FIRST;
        while seen != last {
            let generation = receive(&mailbox).cancel.unwrap();
            assert!(seen < generation || generation == last);
            seen = generation;
        }
    });
}

#[test]
fn a_stop_is_seen_by_everyone_who_looks_later() {
    explore(3, || {
        let mailbox = Arc::new(Mailbox::default());
        for post in [Mailbox::stop, Mailbox::check] {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || post(&mailbox));
        }
        while !receive(&mailbox).stop {}
        assert!(mailbox.is_stopped());
        assert!(receive(&mailbox).stop);
    });
}
