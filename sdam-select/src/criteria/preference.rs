//! Read preferences shared by criteria.

use alloc::sync::Arc;
use core::{fmt, ops::Deref};

use sdam_core::read_preference::{ReadMode, ReadPreference};

/// A read preference that can be cloned without allocating. Creating it does not allocate either if
/// it consists only of a mode.
#[derive(Clone)]
pub struct SharedPreference(Repr);

#[derive(Clone)]
enum Repr {
    Plain(&'static ReadPreference),
    Shared(Arc<ReadPreference>),
}

/// Returns the preference with this mode, without tags or limits.
fn plain(mode: ReadMode) -> &'static ReadPreference {
    match mode {
        ReadMode::Primary => const { &ReadPreference::new(ReadMode::Primary) },
        ReadMode::PrimaryPreferred => const { &ReadPreference::new(ReadMode::PrimaryPreferred) },
        ReadMode::Secondary => const { &ReadPreference::new(ReadMode::Secondary) },
        ReadMode::SecondaryPreferred => {
            const { &ReadPreference::new(ReadMode::SecondaryPreferred) }
        }
        ReadMode::Nearest => const { &ReadPreference::new(ReadMode::Nearest) },
    }
}

impl Deref for SharedPreference {
    type Target = ReadPreference;

    fn deref(&self) -> &ReadPreference {
        match &self.0 {
            Repr::Plain(preference) => preference,
            Repr::Shared(preference) => preference,
        }
    }
}

impl From<ReadMode> for SharedPreference {
    fn from(mode: ReadMode) -> Self {
        Self(Repr::Plain(plain(mode)))
    }
}

impl From<ReadPreference> for SharedPreference {
    fn from(preference: ReadPreference) -> Self {
        let plain = plain(preference.mode);
        Self(if preference == *plain {
            Repr::Plain(plain)
        } else {
            Repr::Shared(Arc::new(preference))
        })
    }
}

impl From<Arc<ReadPreference>> for SharedPreference {
    fn from(preference: Arc<ReadPreference>) -> Self {
        Self(Repr::Shared(preference))
    }
}

impl PartialEq for SharedPreference {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for SharedPreference {}

impl fmt::Debug for SharedPreference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl fmt::Display for SharedPreference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    #[test]
    fn a_shared_preference_is_the_one_it_was_made_of() {
        for &mode in ReadMode::ALL {
            let plain = ReadPreference::new(mode);
            let limited = plain.clone().with_max_staleness(Duration::from_secs(90));
            assert_eq!(*SharedPreference::from(mode), plain);
            for preference in [plain, limited] {
                let shared = SharedPreference::from(Arc::new(preference.clone()));
                assert_eq!(*shared, preference);
                assert_eq!(SharedPreference::from(preference), shared);
            }
        }
    }
}
