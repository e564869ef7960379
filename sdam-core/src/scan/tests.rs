//! Tests of whole scans and selections against scripted servers, in virtual time.

mod errors;
mod order;
mod properties;
mod rescans;
mod selection;
mod world;
