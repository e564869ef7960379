//! The cost of a streamed reply: the time until its event, and the processor time.

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use mongodb::{Client, event::sdam::SdamEvent};

use super::{
    Quick,
    deployment::{Deployment, NO_HEARTBEATS, Ready},
    median, print,
    process::{cpu, micros},
    server::{Kind, SENT_AT, now},
};
use crate::{Result, observer::DEADLINE};

/// The number of pushes that are sent before the measured ones.
const FIRST: usize = 100;

/// The pause between two pushes by the same server.
const PACE: Duration = Duration::from_millis(55);

pub fn all(quick: Quick) -> Result<()> {
    for (members, name) in [(3, "3_members"), (50, "50_members")] {
        let mut deployment = Deployment::start(Kind::ReplicaSet, members)?;
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let mut options = runtime.block_on(deployment.options())?;
        options.heartbeat_freq = Some(NO_HEARTBEATS);
        let latencies = Arc::<Mutex<Vec<f64>>>::default();
        let measured = Arc::clone(&latencies);
        let ready = Ready::attach(&mut options, &deployment, move |event| {
            if let SdamEvent::ServerHeartbeatSucceeded(event) = event
                && let Ok(sent) = event.reply.get_i64(SENT_AT.as_str())
            {
                let time = (now() - sent) as f64 / 1000.0;
                let mut measured = measured.lock().unwrap_or_else(PoisonError::into_inner);
                measured.push(time);
            }
        });
        let client = {
            let _inside = runtime.enter();
            Client::with_options(options)?
        };
        runtime.block_on(ready.wait())?;
        let number = quick.or(100, 600);
        pushed(&mut deployment, &latencies, members, FIRST)?;
        let before = cpu()?;
        let times = pushed(&mut deployment, &latencies, members, number)?;
        let cost = cpu()?.saturating_sub(before);
        print(&format!("push/{name}/to_event"), "us", median(times))?;
        let each = micros(cost) / number as f64;
        print(&format!("push/{name}/cpu"), "us", each)?;
        runtime.block_on(client.shutdown().into_future());
    }
    Ok(())
}

/// Pushes replies and returns the time from each push to its event.
fn pushed(
    deployment: &mut Deployment,
    latencies: &Mutex<Vec<f64>>,
    members: usize,
    number: usize,
) -> Result<Vec<f64>> {
    deployment.push(number, PACE / members as u32)?;
    let begin = Instant::now();
    loop {
        let mut latencies = latencies.lock().unwrap_or_else(PoisonError::into_inner);
        if latencies.len() >= number {
            return Ok(std::mem::take(&mut *latencies));
        }
        let arrived = latencies.len();
        drop(latencies);
        if begin.elapsed() > DEADLINE {
            return Err(format!("{arrived} of {number} pushes became events").into());
        }
        thread::yield_now();
    }
}
