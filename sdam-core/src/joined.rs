//! Displays lists with separators.

use core::fmt::{self, Display};

/// Displays items with a separator between them. Only for use by sdam's crates.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Joined<'a, I>(pub I, pub &'a str);

impl<I: Clone + IntoIterator<Item: Display>> Display for Joined<'_, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, item) in self.0.clone().into_iter().enumerate() {
            f.write_str(if index > 0 { self.1 } else { "" })?;
            item.fmt(f)?;
        }
        Ok(())
    }
}
