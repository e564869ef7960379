use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sdam_core::{
    address::ServerAddress,
    ids::{Generation, ServerId},
    pool::PoolClear,
};
use sdam_sim::oracle::{PoolCall, PoolCalls};
use sdam_transport::pool::{PoolContext, PoolFactory, PoolHandle};

/// Pools that record every call that the topology makes. A test can make one of the calls panic.
/// Clones share the record.
#[derive(Clone, Debug, Default)]
pub struct RecordingPools(Arc<Mutex<Record>>);

#[derive(Debug, Default)]
struct Record {
    calls: Vec<RecordedCall>,
    /// The generations of the open pools.
    open: BTreeMap<ServerId, Generation>,
    /// The method that will panic, and the number of its successful calls before the panic.
    breaks: Option<(&'static str, usize)>,
}

/// A call from the topology to a pool or its factory.
#[derive(Clone, Debug)]
pub struct RecordedCall {
    /// The id of the server.
    pub server: ServerId,
    /// The address of the server.
    pub address: ServerAddress,
    /// The method: `create`, `prepare`, `ready`, `clear` or `close`.
    pub method: &'static str,
    /// The argument of `clear`.
    pub clear: Option<PoolClear>,
}

impl fmt::Display for RecordedCall {
    /// Writes the method and the host, such as `ready a`, and for `clear` also the generation, such
    /// as `clear 1 a`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.method)?;
        if let Some(clear) = &self.clear {
            write!(f, "{} ", clear.generation)?;
        }
        f.write_str(self.address.host())
    }
}

impl RecordingPools {
    /// The message of the panic that a test requested.
    pub const PANIC: &'static str = "the pool is broken";

    /// Makes the next call to `method` panic, once.
    pub fn break_at(&self, method: &'static str) {
        self.break_after(0, method);
    }

    /// Makes `method` panic once, after `calls` further calls.
    pub fn break_after(&self, calls: usize, method: &'static str) {
        self.lock().breaks = Some((method, calls));
    }

    /// Returns all calls so far, in order.
    pub fn calls(&self) -> Vec<RecordedCall> {
        self.lock().calls.clone()
    }

    /// Returns the number of calls to `method`, including those that panicked.
    pub fn count(&self, method: &str) -> usize {
        let record = self.lock();
        let calls = record.calls.iter();
        calls.filter(|call| call.method == method).count()
    }

    /// Returns the calls to pools so far, for [`audit`](sdam_sim::oracle::audit()).
    pub fn commands(&self) -> PoolCalls {
        let command = |call: RecordedCall| {
            let command = match (call.method, call.clear) {
                ("ready", _) => PoolCall::Ready,
                ("close", _) => PoolCall::Close,
                (_, Some(clear)) => PoolCall::Clear(clear),
                (_, None) => return None,
            };
            Some((call.server, command))
        };
        self.calls().into_iter().filter_map(command).collect()
    }

    /// Returns the generations of the open pools.
    pub fn generations(&self) -> BTreeMap<ServerId, Generation> {
        self.lock().open.clone()
    }

    #[expect(clippy::panic, reason = "a test has chosen this panic")]
    fn record(
        &self,
        context: &PoolContext,
        method: &'static str,
        clear: Option<&PoolClear>,
        apply: impl FnOnce(&mut BTreeMap<ServerId, Generation>),
    ) {
        let mut record = self.lock();
        record.calls.push(RecordedCall {
            server: context.server,
            address: context.address.clone(),
            method,
            clear: clear.cloned(),
        });
        match &mut record.breaks {
            Some((own, 0)) if *own == method => {
                record.breaks = None;
                drop(record);
                std::panic::panic_any(Self::PANIC);
            }
            Some((own, calls)) if *own == method => *calls -= 1,
            _ => {}
        }
        apply(&mut record.open);
    }

    fn lock(&self) -> MutexGuard<'_, Record> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PoolFactory for RecordingPools {
    type Pool = RecordingPool;

    fn create(&self, context: PoolContext) -> RecordingPool {
        self.record(&context, "create", None, |open| {
            open.insert(context.server, context.generation);
        });
        RecordingPool { pools: self.clone(), context }
    }
}

/// A pool of [`RecordingPools`].
#[derive(Debug)]
pub struct RecordingPool {
    pools: RecordingPools,
    context: PoolContext,
}

impl RecordingPool {
    /// Returns the context of the pool. With it, a test can open connections as a driver's own pool
    /// would.
    pub fn context(&self) -> &PoolContext {
        &self.context
    }
}

impl PoolHandle for RecordingPool {
    fn prepare(&self) {
        self.pools.record(&self.context, "prepare", None, |_| {});
    }

    fn ready(&self) {
        self.pools.record(&self.context, "ready", None, |_| {});
    }

    fn clear(&self, clear: &PoolClear) {
        self.pools.record(&self.context, "clear", Some(clear), |open| {
            if clear.service_id.is_none() {
                open.insert(self.context.server, clear.generation);
            }
        });
    }

    fn close(&self) {
        self.pools.record(&self.context, "close", None, |open| {
            open.remove(&self.context.server);
        });
    }
}
