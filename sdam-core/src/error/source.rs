//! The value from which an error was made.

use alloc::{boxed::Box, sync::Arc};
use core::{error::Error, fmt};

/// The error of a driver, a transport or the operating system from which an error was made, or
/// none. It lets a driver return its own error to its user.
///
/// It is no data: every two compare equal, and serialization leaves it out. An error that has one
/// still says everything in its own text, so [`Error::source`] does not return it.
#[derive(Clone, Default)]
pub struct ErrorSource(Option<Arc<dyn Error + Send + Sync>>);

impl ErrorSource {
    /// Keeps `source`.
    pub fn new(source: impl Error + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(source)))
    }

    /// Returns the source, if there is one.
    pub fn get(&self) -> Option<&(dyn Error + Send + Sync + 'static)> {
        self.0.as_deref()
    }

    /// Returns the source, if it is an `E`.
    pub fn downcast_ref<E: Error + 'static>(&self) -> Option<&E> {
        self.get()?.downcast_ref()
    }
}

impl From<Box<dyn Error + Send + Sync>> for ErrorSource {
    fn from(source: Box<dyn Error + Send + Sync>) -> Self {
        Self(Some(source.into()))
    }
}

impl PartialEq for ErrorSource {
    /// Returns true.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for ErrorSource {}

impl fmt::Debug for ErrorSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use alloc::{format, string::ToString};

    use super::*;
    use crate::error::{ErrorKind, ServerError, Stage};

    #[test]
    fn the_source_is_returned_as_its_own_type_only() {
        let source = ServerError::new(ErrorKind::Network, Stage::Connect, "refused");
        let kept = ErrorSource::new(source.clone());
        assert_eq!(kept.downcast_ref(), Some(&source));
        assert_eq!(kept.downcast_ref::<fmt::Error>(), None);
        assert_eq!(kept.get().unwrap().to_string(), source.to_string());
        assert!(ErrorSource::default().get().is_none());
    }

    #[test]
    fn a_source_changes_no_comparison_and_is_shown_by_debug_only() {
        let plain = ServerError::new(ErrorKind::Network, Stage::Connect, "refused");
        let mut error = plain.clone();
        error.source = ErrorSource::new(fmt::Error);
        assert_eq!(error, plain);
        assert_eq!(error.to_string(), plain.to_string());
        assert!(format!("{error:?}").contains("source: Some(Error)"));
        assert!(format!("{plain:?}").contains("source: None"));
        assert!(Error::source(&error).is_none(), "the text is complete");
        assert_eq!(error.source_as(), Some(&fmt::Error));
    }
}
