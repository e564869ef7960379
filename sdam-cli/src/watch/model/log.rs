//! The log of changes.

use std::collections::VecDeque;

use sdam_core::time::Instant;

use super::push;
use crate::terminal::Tone;

/// The maximum number of entries to keep.
const CAPACITY: usize = 2000;

/// A change, or a step of the demonstration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The time of the change.
    pub(crate) at: Instant,
    /// The subject of the change, such as the address of a server, `set` or `pool`.
    pub(crate) subject: String,
    /// The description of the change.
    pub(crate) words: String,
    /// The severity, which determines the colour.
    pub(crate) tone: Tone,
}

/// The last changes, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    entries: VecDeque<Entry>,
}

impl Log {
    pub(crate) fn add(
        &mut self,
        at: Instant,
        subject: &(impl ToString + ?Sized),
        tone: Tone,
        words: impl Into<String>,
    ) {
        let (subject, words) = (subject.to_string(), words.into());
        push(&mut self.entries, CAPACITY, Entry { at, subject, words, tone });
    }

    /// Iterates over the entries, oldest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Entry> + ExactSizeIterator {
        self.entries.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_entries_are_removed() {
        let mut log = Log::default();
        for number in 0..CAPACITY as u64 + 3 {
            log.add(Instant::from_millis(number), "set", Tone::Normal, number.to_string());
        }
        assert_eq!(log.iter().len(), CAPACITY);
        assert_eq!(log.iter().next().map(|first| &*first.words), Some("3"));
    }
}
