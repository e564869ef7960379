use alloc::{sync::Arc, vec::Vec};
use core::{fmt, ops::Deref};

use super::ExtendedJson;

/// The maximum length of a document in the output of `Debug`, in characters.
const DEBUG_LENGTH: usize = 200;

/// The bytes of a BSON document, shared by clones.
///
/// `{:?}` prints the document as shortened relaxed Extended JSON.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedDocument(Arc<[u8]>);

impl Deref for SharedDocument {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for SharedDocument {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

macro_rules! from {
    ($($bytes:ty),*) => {$(
        impl From<$bytes> for SharedDocument {
            fn from(bytes: $bytes) -> Self {
                Self(bytes.into())
            }
        }
    )*};
}

from!(Arc<[u8]>, Vec<u8>, &[u8]);

impl fmt::Debug for SharedDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&ExtendedJson::new(self).limited_to(DEBUG_LENGTH), f)
    }
}
