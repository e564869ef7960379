//! Tests of the parts together; each part also has tests of its own.

mod inline;
mod losses;
mod monitoring;
mod requests;
mod silence;
mod srv;
mod trial;
mod world;
