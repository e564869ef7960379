//! Scripts: what happens when, and what the machine has to do about it.

mod cancelling;
mod failing;
mod interleavings;
mod polling;
mod properties;
mod script;
mod sharing;
mod streaming;
