//! Tests of complete scans and selections with scripted servers, in virtual time.

mod order;
mod properties;
mod rescans;
mod selection;
mod world;
