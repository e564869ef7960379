//! The judges: one looks after every step, the others when all is over.

pub(crate) mod cadence;
pub(crate) mod elections;
pub(crate) mod step;
pub(crate) mod truth;
