//! Tests of complete scans and selections with scripted servers, in virtual time.

mod order;
mod properties;
mod selection;
mod world;
