//! Single-threaded mode with a scripted transport, in virtual time, where no future is ever
//! pending.

mod authenticating;
mod balanced;
mod cancelling;
mod connections;
mod errors;
mod events;
mod harness;
mod panics;
mod scanning;
mod selecting;
