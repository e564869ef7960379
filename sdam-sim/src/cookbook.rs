//! Recipes for testing how a program handles failures in its deployment.
//!
//! Each test has four parts: a simulated world with a seed, the program, the faults, and the final
//! assertions. No test sleeps: inside a [`Sim`](crate::runtime::Sim) an hour of outage takes
//! milliseconds. The same seed yields the same run, so failures can be reproduced. Run a test with
//! many seeds to explore different orders of events.
//!
//! All tests but the last are for programs that use the crate `sdam`, which runs on the simulator
//! unchanged. The last one is for programs that use any other driver.
//!
//! # Failover
//!
//! The primary dies, and writes must find its successor. [`Topology::wait_for`] waits for a certain
//! state of the program's topology; [`Sim::status`](crate::runtime::Sim::status) returns the true
//! state.
//!
//! [`Topology::wait_for`]: https://docs.rs/sdam/latest/sdam/struct.Topology.html
//!
//! ```
//! use std::time::Duration;
//!
//! use sdam::{Criteria, ServerAddress, Topology};
//! use sdam_sim::{Blueprint, action::Target, config::SetConfig, runtime::Sim};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let hosts = ["a", "b", "c"].map(|host| ServerAddress::new(host, 27017));
//! for seed in 0..5 {
//!     let sim = Sim::new(seed, &Blueprint::replica_set(SetConfig::new("rs", hosts.clone())));
//!     sim.block_on(async {
//!         let topology = Topology::builder(&sim.uri())?.start(sim.runtime())?;
//!         let first = topology.select(&Criteria::write()).await?.address().clone();
//!
//!         sim.kill(Target::Primary)?;
//!         let successor = topology
//!             .wait_for(
//!                 |snapshot| {
//!                     let primary = snapshot.description().primary()?;
//!                     (primary.address != first).then(|| primary.address.clone())
//!                 },
//!                 Duration::from_secs(60),
//!             )
//!             .await
//!             .ok_or("no successor")?;
//!
//!         let selected = topology.select(&Criteria::write()).await?;
//!         assert_eq!(*selected.address(), successor, "seed {seed}");
//!         let status = sim.status();
//!         assert_eq!(status.primary().map(|member| &member.address), Some(&successor));
//!         drop(selected);
//!         topology.close().await;
//!         Ok::<(), Box<dyn std::error::Error>>(())
//!     })?;
//!     assert_eq!((sim.tasks(), sim.connections()), (0, 0), "nothing is left behind");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Partition
//!
//! The primary is cut off from the other members and from the program: bytes are dropped silently.
//! The other members elect a successor. After the network is healed, the program must discover the
//! old primary as a secondary. Faults between members are [`Action`](crate::Action)s; faults
//! between members and the program are set on [`Sim::network`](crate::runtime::Sim::network).
//!
//! ```
//! use std::time::Duration;
//!
//! use sdam::{Criteria, ServerType, Topology};
//! use sdam_sim::{Action, Blueprint, action::Target, runtime::Sim};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let sim = Sim::new(42, &Blueprint::replica_set(3));
//! let timeout = Duration::from_secs(120);
//! sim.block_on(async {
//!     let topology = Topology::builder(&sim.uri())?.start(sim.runtime())?;
//!     let lost = topology.select(&Criteria::write()).await?.address().clone();
//!
//!     let member = sim.status().primary().map(|member| member.id).ok_or("no primary")?;
//!     sim.apply(&Action::Isolate(Target::Member(member)))?;
//!     sim.network().blackhole(member, true);
//!     let successor = topology
//!         .wait_for(
//!             |snapshot| {
//!                 let primary = snapshot.description().primary()?;
//!                 (primary.address != lost).then(|| primary.address.clone())
//!             },
//!             timeout,
//!         )
//!         .await
//!         .ok_or("no successor")?;
//!
//!     sim.apply(&Action::Heal)?;
//!     sim.network().heal();
//!     topology
//!         .wait_for(
//!             |snapshot| {
//!                 let description = snapshot.description();
//!                 let returned = description.server(&lost)?;
//!                 (returned.server_type == ServerType::RsSecondary).then_some(())
//!             },
//!             timeout,
//!         )
//!         .await
//!         .ok_or("the old primary is missing")?;
//!     // Writes do not go back to the old primary.
//!     assert_eq!(*topology.select(&Criteria::write()).await?.address(), successor);
//!     topology.close().await;
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })?;
//! # Ok(())
//! # }
//! ```
//!
//! # A flapping member
//!
//! A secondary goes up and down. Reads that prefer secondaries must find a server at every moment.
//! The faults are a [`Scenario`](crate::scenario::Scenario), which runs concurrently with the
//! program. A scenario can be stored as a text file or attached to a failure report.
//!
//! ```
//! use std::time::Duration;
//!
//! use sdam::{Criteria, ReadMode, ReadPreference, ServerAddress, Topology};
//! use sdam_sim::{Blueprint, config::SetConfig, runtime::Sim, scenario::Scenario};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let scenario: Scenario = "
//!     1s    kill 2
//!     2s    restart 2
//!     4s    net refuse 2
//!     4s    net reset 2
//!     5s    net heal
//!     7s    freeze 2
//!     25s   thaw 2
//!     30s   shutdown 2
//!     50s   restart 2
//! "
//! .parse()?;
//! let sim = Sim::new(7, &Blueprint::replica_set(3));
//! let reads = sim.block_on(async {
//!     let topology = Topology::builder(&sim.uri())?.start(sim.runtime())?;
//!     let read = Criteria::read(ReadPreference::new(ReadMode::SecondaryPreferred))?;
//!     topology.select(&read).await?;
//!     let clock = sim.runtime().backend.clock;
//!     let end = sim.now() + Duration::from_secs(60);
//!     let program = async {
//!         let mut reads = 0;
//!         while sim.now() < end {
//!             // No timeout: there must be a server immediately.
//!             let Some(_server) = topology.try_select(&read)? else {
//!                 return Err(format!("no readable server at {:?}", sim.now()).into());
//!             };
//!             reads += 1;
//!             clock.sleep_until(sim.now() + Duration::from_millis(100)).await;
//!         }
//!         Ok::<u32, Box<dyn std::error::Error>>(reads)
//!     };
//!     let (reads, refused) = futures::join!(program, scenario.play(&sim));
//!     assert!(refused.is_empty(), "{refused:?}");
//!     topology.close().await;
//!     reads
//! })?;
//! assert_eq!(reads, 600);
//! # Ok(())
//! # }
//! ```
//!
//! # A certificate expires overnight
//!
//! Open connections survive the expiry of their server's certificate, so the program may not notice
//! the expiry until a connection breaks. The error must then name the cause, and the program must
//! recover as soon as the certificate is renewed. [`Sim::tls`](crate::runtime::Sim::tls) sets
//! certificates; [`traffic`](crate::runtime::Network::traffic) shows that the program has sent
//! nothing in plain text.
//!
//! ```
//! use std::time::Duration;
//!
//! use sdam::{Criteria, ServerAddress, Topology};
//! use sdam_sim::{Blueprint, MemberId, config::SetConfig, runtime::Sim};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let hosts = ["a"].map(|host| ServerAddress::new(host, 27017));
//! let sim = Sim::new(42, &Blueprint::replica_set(SetConfig::new("rs", hosts)));
//! sim.tls().require();
//! let (evening, hour) = (sim.now(), Duration::from_secs(3600));
//! let certificate = sim.tls().certificate(MemberId(0));
//! sim.tls().set_certificate(MemberId(0), certificate.valid(evening, evening + 8 * hour));
//! sim.block_on(async {
//!     let topology = Topology::builder(&sim.uri())?.start(sim.runtime())?;
//!     let clock = sim.runtime().backend.clock;
//!     topology.select(&Criteria::write()).await?;
//!
//!     // At midnight the certificate is still valid; in the morning nothing has happened yet.
//!     clock.sleep_until(evening + 12 * hour).await;
//!     topology.select(&Criteria::write()).await?;
//!
//!     // The first connection that breaks cannot be replaced.
//!     sim.network().reset(MemberId(0));
//!     clock.sleep_until(evening + 13 * hour).await;
//!     let error = topology.select(&Criteria::write()).await.unwrap_err();
//!     assert!(error.to_string().contains("expired on"), "{error}");
//!
//!     sim.tls().renew_certificate(MemberId(0));
//!     topology.select(&Criteria::write()).await?;
//!     topology.close().await;
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })?;
//! assert_eq!(sim.network().traffic().plain_text, 0);
//! # Ok(())
//! # }
//! ```
//!
//! In a [`Scenario`](crate::scenario::Scenario) these events are `28800s net certificate 0 expire`,
//! `43200s net reset 0` and `46830s net certificate 0 renew`. Handshakes that stall or are cut
//! (`net tls`), failing look-ups (`net dns`) and dying proxies (`net proxy`) have commands as well.
//!
//! # Another driver
//!
//! A program with its own sockets and clock cannot run in virtual time, but it can connect to the
//! same servers: [`serve`](crate::serve) runs them on loopback ports, with intervals short enough
//! for a test. Pass [`uri`](crate::Served::uri) to the driver, apply an action to the
//! deployment, and wait for an event from the driver instead of sleeping.
//!
//! The driver in this example is a client that only runs commands. Like other drivers, it waits for
//! the step-down with an awaitable hello.
//!
//! ```
//! use bson::doc;
//! use sdam_live::Client;
//! use sdam_sim::Blueprint;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let rs = Blueprint::replica_set(3).serve()?;
//! assert!(rs.uri().starts_with("mongodb://127.0.0.1:"));
//!
//! let primary = rs.primary()?.ok_or("no primary")?;
//! let status = rs.status()?;
//! let host = status.members[usize::from(primary.0)].address.as_str();
//! let mut driver = Client::connect(host.parse()?)?;
//! let mut hello = driver.hello()?;
//! assert!(hello.get_bool("isWritablePrimary")?);
//!
//! rs.step_down()?;
//! // The first change is that there is no primary, the last one is the new primary.
//! while hello.get_bool("isWritablePrimary")? || !hello.contains_key("primary") {
//!     let known = hello.get_document("topologyVersion")?.clone();
//!     let request = doc! { "hello": 1, "topologyVersion": known, "maxAwaitTimeMS": 10_000_i64 };
//!     hello = driver.run_command("admin", request)?;
//! }
//! assert_ne!(hello.get_str("primary")?, host);
//! assert_ne!(rs.primary()?, Some(primary));
//! # Ok(())
//! # }
//! ```
//!
//! For drivers in other languages, use the program `sdam serve`. It prints the connection string
//! and reads the same actions from its standard input, one per line.
