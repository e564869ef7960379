//! Checks that retryable reads and writes do not fail while the primary changes.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use futures_util::TryStreamExt;
use mongodb::{
    Collection,
    bson::{Document, doc},
    options::ReadPreference,
};
use tokio::task::JoinHandle;

use super::{Set, set::Observed};
use crate::{Result, ensure};

/// The number of writing tasks, and of reading tasks.
const TASKS: i64 = 4;

/// The number of operations that each task must complete on the new primary.
const AFTERWARDS: u64 = 25;

pub async fn through_a_step_down(set: &Set) -> Result<()> {
    let observed = set.observed().await?;
    let load = Load::start(&observed, "stepped_down").await?;
    let old = observed.observer.primary()?;
    set.step_down().await?;
    observed.observer.until_other_primary(&old).await?;
    load.finish().await?;
    set.heal().await
}

pub async fn through_a_kill(set: &Set) -> Result<()> {
    let observed = set.observed().await?;
    let load = Load::start(&observed, "killed").await?;
    let old = observed.observer.primary()?;
    set.kill(&old).await?;
    observed.observer.until_other_primary(&old).await?;
    let finished = load.finish().await;
    set.heal().await?;
    finished
}

/// Tasks that continually read and write until they are signalled to finish.
struct Load {
    things: Collection<Document>,
    finish: Arc<AtomicBool>,
    /// Writing tasks, which return the ids of the inserted documents.
    writers: Vec<JoinHandle<Result<BTreeSet<i64>>>>,
    readers: Vec<JoinHandle<Result<()>>>,
    /// The number of successful operations.
    done: Arc<AtomicU64>,
}

impl Load {
    async fn start(observed: &Observed, collection: &str) -> Result<Self> {
        let things = observed.collection(collection).await?;
        things.insert_one(doc! { "_id": -1_i64 }).await?;
        let mut load = Self {
            things,
            finish: Arc::default(),
            writers: Vec::new(),
            readers: Vec::new(),
            done: Arc::default(),
        };
        for task in 0..TASKS {
            let (things, laps) = (load.things.clone(), load.laps());
            load.writers.push(tokio::spawn(write(things, task, laps)));
            let (things, laps) = (load.things.clone(), load.laps());
            load.readers.push(tokio::spawn(read(things, laps)));
        }
        while load.done.load(Ordering::Relaxed) < AFTERWARDS {
            tokio::task::yield_now().await;
        }
        Ok(load)
    }

    fn laps(&self) -> Laps {
        Laps { finish: Arc::clone(&self.finish), done: Arc::clone(&self.done), left: AFTERWARDS }
    }

    /// Waits until each task has finished its last operations. Fails if any operation failed, or if
    /// the collection does not contain exactly the acknowledged documents.
    async fn finish(self) -> Result<()> {
        self.finish.store(true, Ordering::Relaxed);
        for reader in self.readers {
            reader.await??;
        }
        let mut written = BTreeSet::from([-1]);
        for writer in self.writers {
            written.extend(writer.await??);
        }
        let found: Vec<Document> = self.things.find(doc! {}).await?.try_collect().await?;
        let found: BTreeSet<_> = found.iter().flat_map(|found| found.get_i64("_id")).collect();
        ensure(found == written, || {
            let (found, written) = (found.len(), written.len());
            format!("{written} documents were acknowledged, {found} are there")
        })
    }
}

/// Decides when a task ends: [`AFTERWARDS`] operations after the signal to finish.
struct Laps {
    finish: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    left: u64,
}

impl Laps {
    /// Counts an operation, and returns whether another one follows.
    fn another(&mut self) -> bool {
        self.done.fetch_add(1, Ordering::Relaxed);
        if self.finish.load(Ordering::Relaxed) {
            self.left -= 1;
        }
        self.left > 0
    }
}

async fn write(things: Collection<Document>, task: i64, mut laps: Laps) -> Result<BTreeSet<i64>> {
    let mut written = BTreeSet::new();
    for id in (task..).step_by(TASKS as usize) {
        let inserted = things.insert_one(doc! { "_id": id }).await;
        inserted.map_err(|error| format!("insert {id} failed: {error}"))?;
        written.insert(id);
        if !laps.another() {
            break;
        }
    }
    Ok(written)
}

async fn read(things: Collection<Document>, mut laps: Laps) -> Result<()> {
    loop {
        let found = things
            .find_one(doc! { "_id": -1_i64 })
            .selection_criteria(ReadPreference::Primary.into())
            .await
            .map_err(|error| format!("find failed: {error}"))?;
        ensure(found.is_some(), || "a document is missing".into())?;
        if !laps.another() {
            return Ok(());
        }
    }
}
