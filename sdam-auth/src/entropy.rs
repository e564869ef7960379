//! Random numbers for nonces.

use sdam_core::error::Error;
use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};

/// Fills a buffer with unpredictable random bytes.
pub type Entropy = Arc<dyn Fn(&mut [u8]) -> Result<(), Error> + Send + Sync>;

/// Returns the operating system's random number generator.
pub fn os_entropy() -> Entropy {
    Arc::new(|bytes| {
        getrandom::fill(bytes).map_err(|error| {
            Error::auth(format!("the system has no random numbers for a nonce: {error}"))
        })
    })
}

/// Returns a nonce: random printable characters without commas.
pub(crate) fn nonce(entropy: &Entropy) -> Result<String, Error> {
    let mut bytes = [0; 24];
    entropy(&mut bytes)?;
    Ok(BASE64.encode(bytes))
}
