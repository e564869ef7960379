//! Operations per second of several tasks on one and on two threads.

use std::time::Instant;

use mongodb::{
    Client,
    bson::{Document, doc},
};

use super::{
    Quick,
    deployment::{Deployment, start},
    print,
    process::{cpu, micros},
    server::Kind,
};
use crate::Result;

/// The number of concurrent tasks, each with its own connection.
const TASKS: usize = 8;

pub fn all(quick: Quick) -> Result<()> {
    let deployment = Deployment::start(Kind::ReplicaSet, 3)?;
    for (threads, name) in [(1, "1_thread"), (2, "2_threads")] {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .enable_all()
            .build()?;
        let client = runtime.block_on(start(&deployment, None))?;
        for operation in [Operation::Ping, Operation::FindOne] {
            // The first operations open connections.
            runtime.block_on(load(&client, operation, 50))?;
            let each = quick.or(300, 3000);
            let (begin, before) = (Instant::now(), cpu()?);
            runtime.block_on(load(&client, operation, each))?;
            let (time, cost) = (begin.elapsed(), cpu()?.saturating_sub(before));
            let number = (TASKS * each) as f64;
            let figure = format!("{}/{name}", operation.name());
            let rate = number / time.as_secs_f64();
            print(&format!("throughput/{figure}"), "1/s", rate)?;
            print(&format!("cpu/{figure}"), "us", micros(cost) / number)?;
        }
        runtime.block_on(client.shutdown().into_future());
    }
    Ok(())
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Ping,
    FindOne,
}

impl Operation {
    const fn name(self) -> &'static str {
        match self {
            Self::Ping => "ping",
            Self::FindOne => "find_one",
        }
    }

    async fn run(self, client: &Client) -> mongodb::error::Result<()> {
        match self {
            Self::Ping => {
                let database = client.database("test");
                database.run_command(doc! { "ping": 1 }).await.map(drop)
            }
            Self::FindOne => {
                let things = client.database("test").collection::<Document>("things");
                things.find_one(doc! { "_id": 1 }).await.map(drop)
            }
        }
    }
}

/// Runs operations sequentially in each of [`TASKS`] tasks.
async fn load(client: &Client, operation: Operation, each: usize) -> Result<()> {
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                for _ in 0..each {
                    operation.run(&client).await?;
                }
                Ok::<_, mongodb::error::Error>(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    Ok(())
}
