//! The clock and its timers.

use std::{
    future::{Future as _, pending, poll_fn},
    pin::{Pin, pin},
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, Weak},
    task::{Context, Poll},
};

use sdam_transport::{
    clock::Clock,
    system::{Epoch, SystemClock, ThreadClock},
};
use tokio::{runtime::Handle, task::AbortHandle, time};

/// Creates the clock of the runtime behind `handle`.
///
/// # Panics
///
/// If the runtime has no timers.
pub(crate) fn of(handle: Handle) -> Arc<dyn Clock> {
    let driver = Driver::of(handle);
    Arc::new(SystemClock::new(Epoch::begin(), move |epoch, deadline| {
        let driver = Arc::clone(&driver);
        Box::pin(async move {
            let Some(at) = epoch.to_system(deadline) else {
                return pending().await;
            };
            // Tokio rounds deadlines up to the next millisecond, even if they have just passed.
            if epoch.now() >= deadline {
                return;
            }
            let mut timer = pin!(driver.timer(at.into()));
            if poll_fn(|cx| driver.poll(timer.as_mut(), cx)).await {
                // The runtime has shut down, but a timer under another executor must still fire.
                ThreadClock::new(epoch).sleep_until(deadline).await;
            }
        })
    }))
}

/// The timers of a tokio runtime, and a flag that is true once the runtime has shut down.
///
/// Polling a tokio timer panics after its runtime has shut down. Tokio drops all tasks before it
/// stops its timers. A sentinel task, which sets `shut_down` when it is dropped, therefore sets the
/// flag in time.
#[derive(Debug)]
struct Driver {
    handle: Handle,
    /// Read-locked during each poll of a timer, so that the shutdown waits for the poll to end.
    shut_down: Arc<RwLock<bool>>,
    sentinel: AbortHandle,
}

/// The drivers in use. All clocks of a runtime share one driver, so that the runtime needs only one
/// sentinel task.
static DRIVERS: Mutex<Vec<Weak<Driver>>> = Mutex::new(Vec::new());

impl Driver {
    /// Returns the driver of the runtime behind `handle`.
    ///
    /// # Panics
    ///
    /// If the runtime has no timers.
    fn of(handle: Handle) -> Arc<Self> {
        // A known driver may have the same id but belong to an earlier runtime that has shut down.
        let (id, drivers) =
            (handle.id(), || DRIVERS.lock().unwrap_or_else(PoisonError::into_inner));
        let known = |drivers: &[Weak<Self>]| {
            let mut drivers = drivers.iter().filter_map(Weak::upgrade);
            drivers.find(|driver| driver.handle.id() == id && !*driver.shut_down())
        };
        if let Some(driver) = known(&drivers()) {
            return driver;
        }
        let new = Arc::new(Self::new(handle));
        let mut drivers = drivers();
        known(&drivers).unwrap_or_else(|| {
            drivers.retain(|driver| driver.strong_count() > 0);
            drivers.push(Arc::downgrade(&new));
            new
        })
    }

    fn new(handle: Handle) -> Self {
        let shut_down = Arc::default();
        let announcement = Announcement(Arc::clone(&shut_down));
        let sentinel = handle.spawn(async move {
            let _announcement = announcement;
            pending::<()>().await;
        });
        let driver = Self { sentinel: sentinel.abort_handle(), handle, shut_down };
        // If the runtime has no timers, this panics and drops the sentinel, so that the panic
        // occurs here and not later in a monitor.
        drop(driver.timer(time::Instant::now()));
        driver
    }

    fn shut_down(&self) -> RwLockReadGuard<'_, bool> {
        self.shut_down.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn timer(&self, at: time::Instant) -> time::Sleep {
        let _context = self.handle.enter();
        time::sleep_until(at)
    }

    /// Polls `timer`, unless the runtime has shut down, because polling would then panic. Returns
    /// true if the runtime has shut down before the deadline, and false if the deadline has passed.
    fn poll(&self, timer: Pin<&mut time::Sleep>, cx: &mut Context<'_>) -> Poll<bool> {
        let shut_down = self.shut_down();
        if *shut_down { Poll::Ready(true) } else { timer.poll(cx).map(|()| false) }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.sentinel.abort();
    }
}

/// The sentinel, which sets the flag when it is dropped because the runtime shuts down.
#[derive(Debug)]
struct Announcement(Arc<RwLock<bool>>);

impl Drop for Announcement {
    fn drop(&mut self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = true;
    }
}
