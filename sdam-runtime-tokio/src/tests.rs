//! Runs the conformance suite on both of tokio's schedulers.

use std::thread::{self, JoinHandle};

use sdam_testkit::conformance;
use tokio::{
    runtime::{self, Builder, Handle},
    sync::oneshot,
    task,
};

use super::{TokioDial, current, from_handle};

fn multi_thread() -> runtime::Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

#[test]
fn runtime_keeps_its_contracts() {
    let tokio = multi_thread();
    let runtime = from_handle(tokio.handle().clone()).unwrap();
    conformance::runtime(&runtime);
    let dial = TokioDial { handle: tokio.handle().clone() };
    conformance::dial(dial, runtime.backend.clock);
}

/// A current-thread runtime and the thread that drives it.
struct OneThread {
    handle: Handle,
    stop: oneshot::Sender<()>,
    driver: JoinHandle<()>,
}

impl OneThread {
    fn start() -> Self {
        let tokio = Builder::new_current_thread().enable_all().build().unwrap();
        let handle = tokio.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let driver = thread::spawn(move || {
            tokio.block_on(stopped).unwrap();
            drop(tokio);
        });
        Self { handle, stop, driver }
    }

    fn shut_down(self) {
        self.stop.send(()).unwrap();
        self.driver.join().unwrap();
    }
}

#[test]
fn a_single_threaded_runtime_keeps_its_contracts() {
    let tokio = OneThread::start();
    conformance::runtime(&from_handle(tokio.handle.clone()).unwrap());
    tokio.shut_down();
}

#[test]
fn runtimes_that_have_shut_down_keep_their_contracts() {
    let tokio = multi_thread();
    let runtime = from_handle(tokio.handle().clone()).unwrap();
    conformance::shutdown(&runtime, || drop(tokio));

    let tokio = multi_thread();
    let runtime = from_handle(tokio.handle().clone()).unwrap();
    conformance::shutdown(&runtime, || tokio.shutdown_background());

    let tokio = OneThread::start();
    let runtime = from_handle(tokio.handle.clone()).unwrap();
    conformance::shutdown(&runtime, || tokio.shut_down());
}

#[test]
fn all_callers_on_one_runtime_share_a_task_that_ends_with_the_last_of_them() {
    let [first, second] = [(), ()].map(|()| Builder::new_current_thread().enable_all().build());
    let tokios = [first.unwrap(), second.unwrap()];
    let tasks = |tokio: &runtime::Runtime| {
        // The runtime removes an ended task at its next run.
        tokio.block_on(task::yield_now());
        tokio.metrics().num_alive_tasks()
    };
    let start = |tokio: &runtime::Runtime| from_handle(tokio.handle().clone()).unwrap();
    let runtimes = tokios.each_ref().map(|tokio| [start(tokio), start(tokio), start(tokio)]);
    assert_eq!(tokios.each_ref().map(tasks), [1, 1]);
    let [first, second] = runtimes;
    let kept = first.into_iter().next();
    drop(second);
    assert_eq!(tokios.each_ref().map(tasks), [1, 0]);
    drop(kept);
    assert_eq!(tokios.each_ref().map(tasks), [0, 0]);
}

#[test]
fn current_fails_outside_a_tokio_context() {
    let error = current().unwrap_err();
    let text = "not in the context of a tokio runtime; call this inside `block_on`";
    assert!(error.to_string().contains(text), "{error}");
    let tokio = multi_thread();
    let _context = tokio.enter();
    current().unwrap();
}

#[test]
fn a_runtime_without_timers_is_an_error() {
    let bare = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let inside = bare.block_on(async { current() }).unwrap_err();
    assert!(inside.to_string().contains("enable_time"), "{inside}");
    let error = from_handle(bare.handle().clone()).unwrap_err();
    assert_eq!(error.to_string(), inside.to_string());
}

#[test]
fn connecting_without_io_is_an_error() {
    let timed = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let address = sdam_core::address::ServerAddress::new("127.0.0.1", 1);
    let error = timed.block_on(async {
        let transport = current().unwrap().backend.transport;
        transport.connect(&address, None).await.unwrap_err()
    });
    let shown = format!("{:#}", error.without_context());
    assert!(shown.contains("no I/O"), "{shown}");
}
