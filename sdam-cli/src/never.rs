//! Waiting for work that a command line may not ask for.

use std::future::{Future, pending};

/// Waits for `future`, or forever if there is none.
pub(crate) async fn or_never<F: Future>(future: Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => pending().await,
    }
}
