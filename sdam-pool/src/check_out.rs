//! Checks connections out, by taking an idle one, opening one or waiting.

use std::{future::poll_fn, sync::Arc, time::Duration};

use futures::future::{Either, select};
use sdam_core::{error::Error, time::Instant};
use sdam_transport::race;

use crate::{
    connection::{Member, PooledConnection},
    inner::Inner,
    machine::{CheckOut, Step, Ticket},
};

/// The maximum time for which a check-out waits without polling the pool again, if the pool has no
/// worker. In blocking mode, waiting for the timer blocks the thread, so the thread does not notice
/// a connection from another thread until the wait ends.
const TIMER_SLICE: Duration = Duration::from_millis(1);

/// Checks out a connection before `deadline` or, if there is none, within the time limits of the
/// pool's options.
pub(crate) async fn run(
    pool: &Arc<Inner>,
    deadline: Option<Instant>,
) -> Result<PooledConnection, Error> {
    let events = pool.events.check_out_started();
    if pool.by_caller {
        pool.work_by_caller();
    }
    let result = loop {
        let now = pool.clock().now();
        match pool.change(|machine| machine.check_out(now)) {
            Ok(CheckOut::Cold(mut member)) => {
                if member.is_open(now) {
                    member.used = now;
                    break Ok(member);
                }
                pool.change(|machine| machine.check_in(member, None, now));
            }
            Ok(CheckOut::Connection(mut member)) => {
                member.used = now;
                break Ok(member);
            }
            Ok(CheckOut::Wait(ticket)) => {
                let waiting = Waiting { pool, ticket: Some(ticket), deadline };
                break waiting.connection().await;
            }
            Err(error) => break Err(error),
        }
    };
    let result = result.map(|member| PooledConnection::new(Arc::clone(pool), member));
    match &result {
        Ok(connection) => events.succeeded(connection.id()),
        Err(error) => events.failed(error),
    }
    result
}

/// A check-out in the wait queue. It leaves the queue when it is dropped.
struct Waiting<'p> {
    pool: &'p Arc<Inner>,
    /// The place in the queue; `None` once the check-out has its result.
    ticket: Option<Ticket>,
    /// The deadline of the operation; if there is one, it replaces the time limits of the pool's
    /// options.
    deadline: Option<Instant>,
}

impl Waiting<'_> {
    async fn connection(mut self) -> Result<Box<Member>, Error> {
        let Some(ticket) = self.ticket else {
            return Err(Error::pool_shut_down(&self.pool.context.address));
        };
        let pool = self.pool;
        let clock = pool.clock();
        let timeout = pool.context.options.pool.wait_queue_timeout;
        let turn = timeout.map(|timeout| clock.now() + timeout);
        let mut deadline = self.deadline.or(turn);
        loop {
            let slice = pool.by_caller.then(|| clock.now() + TIMER_SLICE);
            let until = deadline.map(|at| slice.map_or(at, |slice| slice.min(at)));
            match race::deadline(clock, until, poll(pool, ticket)).await {
                Ok(Step::Done(result)) => {
                    self.ticket = None;
                    return result;
                }
                Ok(Step::Open(id)) => {
                    let opening = self.open(ticket, id);
                    match race::deadline(clock, self.deadline, opening).await {
                        Ok(Some(result)) => {
                            self.ticket = None;
                            return result;
                        }
                        Ok(None) => {}
                        Err(_) => return self.expire(ticket),
                    }
                }
                Err(_) if until < deadline => {}
                Err(_) if self.deadline.is_some() => return self.expire(ticket),
                Err(_) => {
                    if let Some(result) = pool.change(|machine| machine.time_out(ticket)) {
                        self.ticket = None;
                        return result;
                    }
                    deadline = None;
                }
            }
        }
    }

    /// Fails the check-out because its operation has no time left.
    fn expire(mut self, ticket: Ticket) -> Result<Box<Member>, Error> {
        self.ticket = None;
        self.pool.change(|machine| machine.expire(ticket))
    }

    /// Opens a connection, unless another one is handed over first.
    async fn open(&self, ticket: Ticket, id: u64) -> Option<Result<Box<Member>, Error>> {
        let opening = Box::pin(self.pool.open(id, None));
        match select(opening, Box::pin(poll(self.pool, ticket))).await {
            Either::Right((Step::Done(result), _)) => Some(result),
            Either::Left(_) | Either::Right((Step::Open(_), _)) => None,
        }
    }
}

async fn poll(pool: &Inner, ticket: Ticket) -> Step<Box<Member>> {
    poll_fn(|cx| {
        let (polled, closing) = pool.core.poll(ticket, pool.clock().now(), cx);
        pool.close_all(closing);
        polled
    })
    .await
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            let now = self.pool.clock().now();
            self.pool.change(|machine| machine.cancel(ticket, now));
        }
    }
}
