//! Random numbers for nonces.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use sdam_transport::pool::AuthError;

/// Fills a buffer with unpredictable random bytes.
pub type Entropy = Arc<dyn Fn(&mut [u8]) -> Result<(), AuthError> + Send + Sync>;

/// Returns the operating system's random number generator.
pub fn os_entropy() -> Entropy {
    Arc::new(|bytes| {
        getrandom::fill(bytes).map_err(|error| {
            AuthError::new(format!(
                "the system has no random numbers for a nonce: {error}"
            ))
        })
    })
}

/// Returns a nonce: random printable characters without commas.
pub(crate) fn nonce(entropy: &Entropy) -> Result<String, AuthError> {
    let mut bytes = [0; 24];
    entropy(&mut bytes)?;
    Ok(BASE64.encode(bytes))
}
