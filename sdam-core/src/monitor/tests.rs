//! Tests of the checks of one server: scripted inputs at given times, and the expected outputs.

mod cancelling;
mod failing;
mod polling;
mod script;
mod streaming;
