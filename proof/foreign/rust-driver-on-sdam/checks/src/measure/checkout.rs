//! The cost of an operation until it gets a connection, and until it gets a reply.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use mongodb::{
    bson::doc,
    event::{EventHandler, cmap::CmapEvent},
};

use super::{
    Quick,
    deployment::{Deployment, NO_HEARTBEATS, Ready},
    median, print,
    process::{allocations, cpu, micros},
    server::Kind,
};
use crate::Result;

/// The state of the current operation, taken from its events.
#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    /// The time of the check-out, and the number of allocations before it.
    out: Option<(Instant, usize)>,
    /// True if a connection was opened for the operation.
    cold: bool,
}

pub fn all(quick: Quick) -> Result<()> {
    for (kind, members, name) in [
        (Kind::ReplicaSet, 3, "3_members"),
        (Kind::ReplicaSet, 50, "50_members"),
        (Kind::Sharded, quick.or(100, 1000), "1000_mongoses"),
    ] {
        measure(kind, members, name, quick)?;
    }
    Ok(())
}

fn measure(kind: Kind, members: usize, name: &str, quick: Quick) -> Result<()> {
    let deployment = Deployment::start(kind, members)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut options = runtime.block_on(deployment.options())?;
    options.heartbeat_freq = Some(NO_HEARTBEATS);
    let marks = Arc::<Mutex<Marks>>::default();
    let marked = Arc::clone(&marks);
    options.cmap_event_handler = Some(EventHandler::callback(move |event| {
        let now = (Instant::now(), allocations());
        let mut marks = marked.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            CmapEvent::ConnectionCheckedOut(_) => marks.out = Some(now),
            CmapEvent::ConnectionCreated(_) => marks.cold = true,
            _ => {}
        }
    }));
    let ready = Ready::attach(&mut options, &deployment, |_| {});
    let (begin, before) = (Instant::now(), cpu()?);
    let client = {
        let _inside = runtime.enter();
        mongodb::Client::with_options(options)?
    };
    runtime.block_on(ready.wait())?;
    print(&format!("start/{name}/time"), "us", micros(begin.elapsed()))?;
    let cost = cpu()?.saturating_sub(before);
    print(&format!("start/{name}/cpu"), "us", micros(cost))?;

    let mut samples = Samples::default();
    let number = quick.or(300, 3000);
    let database = client.database("admin");
    while samples.out_time.len() < number {
        *marks.lock().unwrap_or_else(PoisonError::into_inner) = Marks::default();
        let (start, first) = (Instant::now(), allocations());
        runtime.block_on(async { database.run_command(doc! { "ping": 1 }).await })?;
        let (end, last) = (Instant::now(), allocations());
        let marks = *marks.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some((time, count)), false) = (marks.out, marks.cold) {
            samples.out_time.push(micros(time - start));
            samples.out_allocations.push((count - first) as f64);
            samples.reply_time.push(micros(end - start));
            samples.reply_allocations.push((last - first) as f64);
        }
    }
    samples.print(name)
}

/// The measurements of operations that used a connection which was already open.
#[derive(Debug, Default)]
struct Samples {
    out_time: Vec<f64>,
    out_allocations: Vec<f64>,
    reply_time: Vec<f64>,
    reply_allocations: Vec<f64>,
}

impl Samples {
    fn print(self, name: &str) -> Result<()> {
        let count = "allocations";
        for (figure, unit, values) in [
            ("checkout", "us", self.out_time),
            ("checkout", count, self.out_allocations),
            ("ping", "us", self.reply_time),
            ("ping", count, self.reply_allocations),
        ] {
            let of = if unit == count { count } else { "time" };
            print(&format!("{figure}/{name}/{of}"), unit, median(values))?;
        }
        Ok(())
    }
}
