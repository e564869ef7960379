//! SRV seed lists and SRV polling, with the simulated DNS in virtual time.

mod failures;
mod lifecycle;
mod polling;
mod scanning;
mod seeds;
mod world;
