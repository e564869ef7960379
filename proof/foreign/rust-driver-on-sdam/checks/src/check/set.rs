//! The replica set that the checks share.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use mongodb::{
    Client, Collection,
    bson::{Bson, Document, doc},
    options::{ClientOptions, ServerAddress, WriteConcern},
};
use sdam_live::{MemberSpec, ReplicaSet, or_skip};
use tokio::{task::spawn_blocking, time::interval};

use crate::{
    Result,
    observer::{DEADLINE, Observer},
};

/// A replica set of three members with the tags `member: 0` to `member: 2`.
#[derive(Clone, Debug)]
pub struct Set(Arc<ReplicaSet>);

/// A client and the record of its events.
#[derive(Debug)]
pub struct Observed {
    pub client: Client,
    pub observer: Observer,
}

impl Set {
    /// Starts a set. Without a `mongod`, prints the reason and returns `None`.
    pub fn start() -> Result<Option<Self>> {
        let member = |number: &str| MemberSpec::new().tag("member", number);
        let members = ["0", "1", "2"].map(member);
        let set = or_skip(ReplicaSet::start(None, &members))?;
        Ok(set.map(|set| Self(Arc::new(set))))
    }

    /// Returns client options with the shortest heartbeat interval.
    pub async fn options(&self) -> Result<ClientOptions> {
        let mut options = ClientOptions::parse(self.0.uri()).await?;
        options.heartbeat_freq = Some(Duration::from_millis(500));
        options.server_selection_timeout = Some(DEADLINE);
        Ok(options)
    }

    /// Starts a client, and waits until it knows the whole set.
    pub async fn observed(&self) -> Result<Observed> {
        self.observed_with(|_| {}).await
    }

    /// Starts a client with changed options, and waits until it knows the whole set.
    pub async fn observed_with(&self, change: impl FnOnce(&mut ClientOptions)) -> Result<Observed> {
        let mut options = self.options().await?;
        change(&mut options);
        let observer = Observer::attach(&mut options);
        let client = Client::with_options(options)?;
        observer.until_whole().await?;
        Ok(Observed { client, observer })
    }

    /// Makes the primary step down, and waits until the set has another primary.
    pub async fn step_down(&self) -> Result<()> {
        self.blocking(|set| {
            set.step_down()?;
            set.primary().map(drop)
        })
        .await
    }

    /// Returns the time of the first reply in which a member other than `old` is writable. The
    /// search begins immediately.
    pub fn watch_election(
        &self,
        old: &ServerAddress,
    ) -> impl Future<Output = Result<Instant>> + use<> {
        let (set, old) = (Arc::clone(&self.0), old.to_string());
        let search = spawn_blocking(move || {
            let mut others: Vec<_> = set
                .members()
                .filter(|member| member.host() != old)
                .map(|member| (member, member.client()))
                .collect();
            let begin = Instant::now();
            while begin.elapsed() < 2 * DEADLINE {
                for (member, client) in &mut others {
                    match client.as_mut().map(sdam_live::Client::hello) {
                        Ok(Ok(hello)) if hello.get_bool("isWritablePrimary").is_ok_and(|is| is) => {
                            return Ok(Instant::now());
                        }
                        Ok(Ok(_)) => {}
                        // A member that rolls back writes closes its connections, so this opens a
                        // new one.
                        _ => *client = member.client(),
                    }
                }
                // A pause between requests leaves the servers time for other work.
                std::thread::sleep(Duration::from_millis(2));
            }
            Err("no other primary was elected".into())
        });
        async move { search.await? }
    }

    /// Kills a member.
    pub async fn kill(&self, address: &ServerAddress) -> Result<()> {
        let address = address.to_string();
        self.blocking(move |set| {
            set.members()
                .filter(|member| member.host() == address)
                .try_for_each(sdam_live::Mongod::kill)
        })
        .await
    }

    /// Starts the dead members again, lets those that stepped down run for election, and waits
    /// until each is primary or secondary.
    pub async fn heal(&self) -> Result<()> {
        self.blocking(|set| {
            set.members()
                .filter(|member| !member.is_responsive())
                .try_for_each(sdam_live::Mongod::restart)?;
            set.wait_until_settled()?;
            for member in set.secondaries() {
                set.member(member).run_command("admin", doc! { "replSetFreeze": 0 })?;
            }
            Ok(())
        })
        .await
    }

    /// Returns the number of connections to all members whose client metadata satisfies the
    /// predicate.
    pub async fn connections(
        &self,
        is: impl Fn(&Document) -> bool + Send + 'static,
    ) -> Result<usize> {
        self.blocking(move |set| {
            let list = doc! {
                "aggregate": 1,
                "pipeline": [{ "$currentOp": { "allUsers": true, "idleConnections": true } }],
                "cursor": { "batchSize": 100_000 },
                "$readPreference": { "mode": "secondaryPreferred" },
            };
            let mut count = 0;
            for member in set.members() {
                let reply = member.run_command("admin", list.clone())?;
                let operations =
                    reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
                let operations = operations.into_iter().flatten();
                count += operations
                    .filter_map(Bson::as_document)
                    .filter_map(|operation| operation.get_document("clientMetadata").ok())
                    .filter(|metadata| is(metadata))
                    .count();
            }
            Ok(count)
        })
        .await
    }

    /// Asks the servers for the number of connections until it satisfies the predicate.
    pub async fn until_connections(
        &self,
        what: &str,
        is: impl Fn(&Document) -> bool + Clone + Send + 'static,
        holds: impl Fn(usize) -> bool,
    ) -> Result<()> {
        let deadline = Instant::now() + DEADLINE;
        let mut ticks = interval(Duration::from_millis(50));
        loop {
            ticks.tick().await;
            let count = self.connections(is.clone()).await?;
            if holds(count) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("the servers have {count} {what}").into());
            }
        }
    }

    async fn blocking<T: Send + 'static>(
        &self,
        run: impl FnOnce(&ReplicaSet) -> Result<T, sdam_live::Error> + Send + 'static,
    ) -> Result<T> {
        let set = Arc::clone(&self.0);
        Ok(spawn_blocking(move || run(&set)).await??)
    }
}

impl Observed {
    /// Creates an empty collection whose writes wait until a majority has them.
    pub async fn collection(&self, name: &str) -> Result<Collection<Document>> {
        let database = self.client.database("checks");
        database.collection::<Document>(name).drop().await?;
        let majority = WriteConcern::majority();
        database.create_collection(name).write_concern(majority.clone()).await?;
        let options =
            mongodb::options::CollectionOptions::builder().write_concern(majority).build();
        Ok(database.collection_with_options(name, options))
    }
}
