//! Random faults for simulated deployments, and oracles that check the engine under these faults.
//!
//! A seed determines a [`plan::Plan`]: a deployment, the configuration of a client (with or without
//! TLS, proxy and SRV records), applications that use the client, and faults that are healed at the
//! end. [`run::run`] runs the plan in virtual time and checks it after every step, whenever no task
//! is ready, and at the end. The same seed always yields the same run, so a failure is identified
//! by its seed. [`regression::shrink`] minimizes a failure, and [`regression::timeline`] formats
//! it.
//!
//! | oracle | checks |
//! | --- | --- |
//! | P1 | at most one primary; the topology type agrees |
//! | P2 | elections are only replaced by newer ones, by the rule of the server's release |
//! | P3 | a selectable server's pool is ready before the server is published, and a lost server's pool is cleared afterwards; no stale connection is handed out, the size of a pool is within its limits, and after the faults every pool has its minimum |
//! | P4 | event numbers and pool generations have no gaps |
//! | P5 | every heartbeat ends exactly once |
//! | P6 | checks run one at a time, at least 500 ms apart except for one retry and streamed replies, and are never late; SRV records are looked up at most once a minute, or at each heartbeat after a failure |
//! | P7 | no task, timer, connection or pool outlives its server |
//! | P8 | after all faults are healed, the description soon matches the deployment and the SRV records; in a third of the sets only a majority is healed, and the client soon knows its primary and can select it |
//! | P9 | no selection waits while a suitable server exists, or past its timeout; no check-out waits while a connection is idle, without an attempt to connect, or past its timeout or the deadline of its operation |
//! | P10 | closing and dropping complete immediately |
//! | wire | nothing is sent in plain text if TLS is enabled, and nothing bypasses a configured proxy |
//! | stages | errors name the stage at which they occurred |
//! | replay | replaying a recording of the run yields the same events, including heartbeats |
//! | continuity, freshness, errors, selection, memory, busy-loop, panic, determinism | see [`Oracle`](sdam_sim::oracle::Oracle) |
//!
//! A single-threaded client ([`plan::Kind::Scan`]) cannot be observed at every step, so it is
//! checked by the same rules between the calls to it. Its checks of servers must respect the
//! minimum interval and the cooldown.
//!
//! Half of the seeds leave out some kinds of faults, because some states can only be reached if the
//! faults that would end them do not occur. A run also records which situations it reached
//! ([`coverage::Coverage`]): the cells of the specification's table of topology and server types,
//! every event, every input and output, every kind of error, and every reason for a departure, a
//! failure or a closed connection. Together, 10,000 seeds must reach all of them.
//!
//! Half of the seeds also disturb the simulation
//! ([`Sim::disturb`](sdam_sim::runtime::Sim::disturb)): reads and writes are partial, timers are
//! late, tasks are polled without a reason, and ready tasks wait. An eighth of the seeds suspend
//! the client's host.
//!
//! `cargo xtask sim --seeds 0..2000` runs seeds.

pub mod coverage;
pub mod plan;
pub mod regression;
pub mod run;
pub mod silent;

mod load;
mod oracle;
mod record;

pub use crate::record::Counts;
