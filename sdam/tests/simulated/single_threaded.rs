//! Tests single-threaded mode with a scripted transport, in virtual time. Futures are pending only
//! if a test stalls the transport.

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
