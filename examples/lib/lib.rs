//! The listings of the front page and of the guide, as doc tests.
//!
//! Each example is a single file that does not use this library.

#[cfg(doctest)]
mod guide;

/// Compiles the program of the front page.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
