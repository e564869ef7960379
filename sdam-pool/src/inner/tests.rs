use std::{
    future::pending,
    task::{Context, Poll},
};

use sdam_testkit::ManualClock;
use sdam_transport::{async_trait, connect::Transport, runtime::Backend};

use super::*;
use crate::machine::{CheckOut, Step};

/// A network that never answers.
#[derive(Debug)]
struct Silence;

#[async_trait]
impl Transport for Silence {
    async fn connect(
        &self,
        _: &ServerAddress,
        _: Option<Instant>,
    ) -> Result<Box<dyn Connection>, Error> {
        pending().await
    }
}

/// Tests a clear that interrupts an attempt after the attempt has started but before its first
/// poll.
#[test]
fn an_attempt_that_is_dropped_before_its_first_poll_ends() {
    let backend = Backend::new(Arc::new(ManualClock::default()), Arc::new(Silence), 1);
    let address = ServerAddress::new("a", 1);
    let context = PoolContext::new(ServerId::from_u64(1), address, backend);
    let pool = Inner::new(context);
    pool.change(|machine| machine.ready(None));
    let (result, _) = pool.core.change(|machine| machine.check_out(Instant::EPOCH));
    let Ok(CheckOut::Wait(ticket)) = result else {
        panic!("there is a connection: {result:?}");
    };
    let cx = &mut Context::from_waker(Waker::noop());
    let (Poll::Ready(Step::Open(id)), _) = pool.core.poll(ticket, Instant::EPOCH, cx) else {
        panic!("nothing is opened");
    };
    assert_eq!(pool.core.with(|machine| machine.stats().pending), 1);
    drop(pool.open(id, None));
    assert_eq!(pool.core.with(|machine| machine.stats().pending), 0);
}
