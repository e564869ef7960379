use md5::{Digest as _, Md5};
use zeroize::Zeroizing;

use super::ScramError;

/// A SCRAM mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mechanism {
    /// SCRAM-SHA-1, which uses a digest of the user name and the password in place of the password.
    ScramSha1,
    /// SCRAM-SHA-256, which uses the password after SASLprep has been applied to it.
    ScramSha256,
}

impl Mechanism {
    /// All SCRAM mechanisms.
    pub const ALL: [Self; 2] = [Self::ScramSha1, Self::ScramSha256];

    /// Returns the name, such as `SCRAM-SHA-256`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ScramSha1 => "SCRAM-SHA-1",
            Self::ScramSha256 => "SCRAM-SHA-256",
        }
    }

    /// Returns the secret from which the keys are derived.
    ///
    /// # Errors
    ///
    /// [`ScramError::Password`] if the mechanism is SCRAM-SHA-256 and SASLprep prohibits a
    /// character of the password.
    pub(crate) fn prepare(
        self,
        user: &str,
        password: &str,
    ) -> Result<Zeroizing<String>, ScramError> {
        match self {
            Self::ScramSha1 => {
                let mut digest = Md5::new();
                for part in [user, ":mongo:", password] {
                    digest.update(part);
                }
                let digits = digest.finalize().iter().fold(
                    Zeroizing::new(String::with_capacity(32)),
                    |mut digits, byte| {
                        for half in [byte >> 4, byte & 15] {
                            digits.extend(char::from_digit(half.into(), 16));
                        }
                        digits
                    },
                );
                Ok(digits)
            }
            Self::ScramSha256 => stringprep::saslprep(password)
                .map(|text| Zeroizing::new(text.into_owned()))
                .map_err(|_| ScramError::Password),
        }
    }
}
