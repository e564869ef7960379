//! Runs the conformance suite on the global executor and on a local one.

use std::{
    sync::{Arc, mpsc},
    thread,
};

use sdam_testkit::conformance;
use smol::{Executor, channel};

#[test]
fn runtime_keeps_its_contracts() {
    let runtime = super::runtime();
    conformance::runtime(&runtime);
    conformance::dial(super::SmolDial, runtime.backend.clock);
}

#[test]
fn a_runtime_on_a_stopped_executor_keeps_its_contracts() {
    let executor = Arc::new(Executor::new());
    let runtime = super::on(&executor);
    let (stop, stopped) = channel::bounded::<()>(1);
    let (done, ended) = mpsc::channel();
    thread::spawn(move || {
        // When `stop` is dropped, `run` ends, and then the executor is dropped.
        let _ = smol::block_on(executor.run(stopped.recv()));
        drop(executor);
        done.send(())
    });
    conformance::runtime(&runtime);
    conformance::shutdown(&runtime, || {
        drop(stop);
        ended.recv().unwrap();
    });
}
