//! Runs the code listings of the README and of the guide as doc tests.
//!
//! The examples do not use this library.

/// The pool of the listing in the README.
#[allow(dead_code, reason = "the functions of the program are used by the example")]
#[path = "../custom_pool.rs"]
pub mod custom_pool;

#[cfg(doctest)]
mod guide;

/// Compiles the program in the README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
