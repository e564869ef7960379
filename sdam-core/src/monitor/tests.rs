//! Tests of the monitor machine: scripted inputs at given times, and the effects they must have.

mod cancelling;
mod failing;
mod interleavings;
mod polling;
mod properties;
mod script;
mod sharing;
mod streaming;
