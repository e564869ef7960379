//! Tests the parts of a deployment together; each part also has its own tests.

mod deadlines;
mod inline;
mod losses;
mod monitoring;
mod requests;
mod silence;
mod srv;
mod trial;
mod world;
