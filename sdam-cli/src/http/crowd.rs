//! The open connections of clients. If too many connections are idle, a new one displaces the
//! oldest idle one.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::{Future, pending},
};

use futures::channel::oneshot;

use super::{MAX_ANSWERS, MAX_IDLE};

/// The open connections.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    /// The connections whose request is not complete yet, oldest first.
    idle: RefCell<VecDeque<(u64, oneshot::Sender<()>)>>,
    entered: Cell<u64>,
    /// The number of requests that are being answered.
    answers: Cell<usize>,
}

/// Represents an open connection; dropping the value removes the connection from the crowd.
#[derive(Debug)]
pub(super) struct Visit<'c> {
    crowd: &'c Crowd,
    number: u64,
    is_answered: Cell<bool>,
}

impl Crowd {
    /// Adds a connection. The returned future resolves when a newer connection displaces it.
    pub(super) fn enter(&self) -> (Visit<'_>, impl Future<Output = ()> + use<>) {
        let (displace, displaced) = oneshot::channel();
        let number = self.entered.replace(self.entered.get() + 1);
        let mut idle = self.idle.borrow_mut();
        if idle.len() >= MAX_IDLE
            && let Some((_, oldest)) = idle.pop_front()
        {
            // Ignore the error, because sending fails only if the oldest connection has just ended.
            let _ = oldest.send(());
        }
        idle.push_back((number, displace));
        let displaced = async {
            if displaced.await.is_err() {
                pending::<()>().await;
            }
        };
        (Visit { crowd: self, number, is_answered: Cell::new(false) }, displaced)
    }
}

impl Visit<'_> {
    /// Marks this connection's request as being answered, so the connection is no longer idle.
    /// Returns false if too many other requests are being answered.
    pub(super) fn ask(&self) -> bool {
        self.is_answered.set(self.is_answered.get() || self.begin());
        self.is_answered.get()
    }

    fn begin(&self) -> bool {
        self.leave_idle();
        let answers = self.crowd.answers.get();
        let has_room = answers < MAX_ANSWERS;
        self.crowd.answers.set(answers + usize::from(has_room));
        has_room
    }

    fn leave_idle(&self) {
        let mut idle = self.crowd.idle.borrow_mut();
        if let Ok(place) = idle.binary_search_by_key(&self.number, |(number, _)| *number) {
            drop(idle.remove(place));
        }
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.leave_idle();
        if self.is_answered.get() {
            self.crowd.answers.set(self.crowd.answers.get() - 1);
        }
    }
}
