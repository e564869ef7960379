//! Waits for work that is optional, because it depends on the command line.

use std::future::{Future, pending};

/// Waits for `future`, or forever if there is none.
pub(crate) async fn or_never<F: Future>(future: Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => pending().await,
    }
}
