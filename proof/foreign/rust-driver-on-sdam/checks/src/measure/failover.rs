//! The time without writes when the primary of a real replica set steps down or is killed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use mongodb::{
    Collection,
    bson::{Document, doc},
    options::{CollectionOptions, ServerAddress, WriteConcern},
};
use tokio::{sync::watch, task::JoinHandle, time::timeout};

use super::{Quick, print, process::micros};
use crate::{
    Result,
    check::{Observed, Set},
};

/// The number of writes on the new primary after which a failover counts as finished.
const AFTERWARDS: usize = 20;

/// The time limit of one failover.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    StepDown,
    Kill,
}

pub fn all(quick: Quick) -> Result<()> {
    let Some(set) = Set::start()? else {
        return Ok(());
    };
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(measure(&set, quick))
}

async fn measure(set: &Set, quick: Quick) -> Result<()> {
    let observed = set.observed_with(|options| options.heartbeat_freq = None).await?;
    // Writes do not wait for secondaries, which take a second to find the new primary's oplog.
    let primary_alone = CollectionOptions::builder().write_concern(WriteConcern::nodes(1)).build();
    let database = observed.client.database("checks");
    let things = database.collection_with_options("gaps", primary_alone);
    things.insert_one(doc! {}).await?;
    let writer = Writer::start(things);
    for (cause, name, number) in
        [(Cause::StepDown, "step_down", quick.or(2, 20)), (Cause::Kill, "kill", quick.or(1, 10))]
    {
        for _ in 0..number {
            let failover = timeout(LIMIT, through(set, &observed, &writer, cause));
            let Failover { gap, delay } =
                failover.await.map_err(|_| format!("writes do not resume after a {name}"))??;
            set.heal().await?;
            let millis = |duration| micros(duration) / 1000.0;
            print(&format!("failover/{name}/without_writes"), "ms", millis(gap))?;
            print(&format!("failover/{name}/after_election"), "ms", millis(delay))?;
        }
    }
    let failed = writer.finish().await?;
    print("failover/failed_writes", "writes", f64::from(failed))
}

/// The measured times of one failover.
struct Failover {
    /// The longest time between two successful writes.
    gap: Duration,
    /// The time from the first hello reply of a new primary to the first write after it.
    delay: Duration,
}

async fn through(
    set: &Set,
    observed: &Observed,
    writer: &Writer,
    cause: Cause,
) -> Result<Failover> {
    let old = observed.observer.primary()?;
    writer.clear();
    // The set must be writable before the failover; otherwise the gap would include the previous
    // one.
    writer.until(|writes| writes.len() >= AFTERWARDS).await?;
    let elected = set.watch_election(&old);
    let trigger: JoinHandle<Result<()>> = tokio::spawn({
        let (set, old) = (set.clone(), old.clone());
        async move { disturb(&set, cause, &old).await }
    });
    let elected = elected.await?;
    let since = |writes: &[Instant]| writes.iter().filter(|write| **write > elected).count();
    observed.observer.until_other_primary(&old).await?;
    trigger.await??;
    let ends = writer.until(|writes| since(writes) >= AFTERWARDS).await?;
    let gaps = ends.windows(2).map(|pair| pair[1] - pair[0]);
    let first = ends.iter().find(|write| **write > elected);
    Ok(Failover {
        gap: gaps.max().ok_or("no writes")?,
        delay: *first.ok_or("no write after the election")? - elected,
    })
}

async fn disturb(set: &Set, cause: Cause, old: &ServerAddress) -> Result<()> {
    match cause {
        Cause::StepDown => set.step_down().await,
        Cause::Kill => set.kill(old).await,
    }
}

/// A task that writes continually and records the end of each write.
struct Writer {
    writes: watch::Sender<Vec<Instant>>,
    finish: Arc<AtomicBool>,
    /// The writing task, which returns the number of failed writes.
    task: JoinHandle<u32>,
}

impl Writer {
    fn start(things: Collection<Document>) -> Self {
        let writes = watch::Sender::new(Vec::new());
        let finish = Arc::<AtomicBool>::default();
        let (noted, stop) = (writes.clone(), Arc::clone(&finish));
        let task = tokio::spawn(async move {
            let mut failed = 0;
            while !stop.load(Ordering::Relaxed) {
                match things.insert_one(doc! {}).await {
                    Ok(_) => noted.send_modify(|writes| writes.push(Instant::now())),
                    Err(error) => {
                        eprintln!("a write failed: {error}");
                        failed += 1;
                    }
                }
            }
            failed
        });
        Self { writes, finish, task }
    }

    fn clear(&self) {
        self.writes.send_modify(Vec::clear);
    }

    /// Waits until the writes so far satisfy the predicate, and returns them.
    async fn until(&self, holds: impl Fn(&[Instant]) -> bool) -> Result<Vec<Instant>> {
        let mut writes = self.writes.subscribe();
        Ok(writes.wait_for(|writes| holds(writes)).await?.clone())
    }

    /// Returns the number of writes that failed.
    async fn finish(self) -> Result<u32> {
        self.finish.store(true, Ordering::Relaxed);
        Ok(self.task.await?)
    }
}
