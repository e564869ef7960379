//! Runs the code listings of the README and of the guide as doc tests.
//!
//! Each example is a single file that does not use this library.

#[cfg(doctest)]
mod guide;

/// Compiles the program in the README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
