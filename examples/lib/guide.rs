//! The listings of the guide, as doc tests.

#[doc = include_str!("../../docs/guide/src/application.md")]
struct Application;

#[doc = include_str!("../../docs/guide/src/pool.md")]
struct Pool;
