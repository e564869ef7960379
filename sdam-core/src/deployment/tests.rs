//! Tests of a deployment by its inputs and outputs.

mod checks;
mod departures;
mod errors;
mod losses;
mod monitoring;
mod requests;
mod scans;
mod silence;
mod topology;
mod trial;
mod world;
