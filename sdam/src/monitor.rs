//! The connections of checks, and their timer.

pub(crate) mod connection;
pub(crate) mod links;
pub(crate) mod timer;

use std::{future::poll_fn, task::Poll};

use sdam_core::time::Instant;
use sdam_transport::clock::Clock;

use self::{
    connection::{Answer, MonitorConnection},
    timer::DeadlineTimer,
};

/// Waits for the connection's answer; returns `None` at the deadline. An answer that has already
/// arrived counts, even if the deadline has passed.
pub(crate) async fn answer(
    clock: &dyn Clock,
    connection: &mut MonitorConnection,
    deadline: Option<Instant>,
    timer: &mut DeadlineTimer,
) -> Option<Answer> {
    poll_fn(|cx| {
        if let Poll::Ready(answer) = connection.poll(cx) {
            return Poll::Ready(Some(answer));
        }
        timer.poll(clock, deadline, cx).map(|()| None)
    })
    .await
}
