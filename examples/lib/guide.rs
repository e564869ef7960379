//! Compiles the listings of the guide as doc tests.

#[doc = include_str!("../../docs/guide/src/application.md")]
struct Application;

#[doc = include_str!("../../docs/guide/src/reaching.md")]
struct Reaching;

#[doc = include_str!("../../docs/guide/src/incidents.md")]
struct Incidents;

#[doc = include_str!("../../docs/guide/src/silence.md")]
struct Silence;

#[doc = include_str!("../../docs/guide/src/pool.md")]
struct Pool;

#[doc = include_str!("../../docs/guide/src/driver.md")]
struct Driver;

#[doc = include_str!("../../docs/guide/src/runtime.md")]
struct Runtime;

#[doc = include_str!("../../docs/guide/src/machine.md")]
struct Machine;

#[doc = include_str!("../../docs/guide/src/sink.md")]
struct Sink;

#[doc = include_str!("../../docs/guide/src/simulation.md")]
struct Simulation;

#[doc = include_str!("../../docs/guide/src/recipes.md")]
struct Recipes;
