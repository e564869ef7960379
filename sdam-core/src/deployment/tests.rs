//! Tests of what the parts do together; each part has tests of its own.

mod losses;
mod monitoring;
mod requests;
mod srv;
mod world;
