//! Random faults for simulated deployments, and oracles that watch the engine meet them.
//!
//! A seed stands for a [`plan::Plan`]: a deployment, a configured client, applications that use it,
//! and faults that are healed in the end. [`run::run`] runs it in virtual time and judges it: after
//! every step, whenever nothing is ready, and when all is over. The same seed is always the same
//! run, so a failure is a number, which [`shrink::shrink`] makes small and [`timeline::timeline`]
//! makes readable.
//!
//! | oracle | what it watches |
//! | --- | --- |
//! | P1 | at most one primary; the topology type agrees |
//! | P2 | elections are only replaced by newer ones, by the rule of the server's release |
//! | P3 | a selectable server's pool is ready, before it is published; a lost server's is cleared, after |
//! | P4 | numbers of events and generations of pools have no gaps |
//! | P5 | every heartbeat ends exactly once |
//! | P6 | one check at a time, the 500 ms floor but for the one retry and streamed replies, and none late |
//! | P7 | no task, timer, connection or pool outlives its server |
//! | P8 | after all is healed the description becomes the truth in time |
//! | P9 | nobody waits although there is what they wait for, nor longer than they want |
//! | P10 | closing and dropping end at once |
//! | story, freshness, errors, selection, memory, busy-loop, panic, determinism | see [`Oracle`](sdam_sim::oracle::Oracle) |
//!
//! Of a single-threaded client ([`plan::Kind::Scan`]) there is no step that others could see, so it is
//! judged between its calls, by the same rules; its checks obey the floor and the cooldown.
//!
//! `cargo xtask sim --seeds 0..2000` runs seeds; `cargo xtask mutants` shows that the oracles see.
//!
#![doc = include_str!("../mutants.md")]

pub mod plan;
pub mod regression;
pub mod run;
pub mod shrink;
pub mod timeline;

mod ask;
mod ledger;
mod load;
mod oracle;

pub use crate::ledger::Counts;
