//! The oracles. `step` checks after every step; the others check at the end of a run.

pub(crate) mod cadence;
pub(crate) mod elections;
pub(crate) mod pooled;
pub(crate) mod replayed;
pub(crate) mod silence;
pub(crate) mod step;
pub(crate) mod truth;
pub(crate) mod wire;
