//! Texts in messages: lists, spelling suggestions, and `Debug` output that hides fields.

use alloc::vec::Vec;
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

/// Returns the word of `known` that is most similar to the misspelled `word`, ignoring case; `None`
/// if no word is similar enough. Only for use by sdam's crates.
#[doc(hidden)]
pub fn closest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    if word.len() > LONGEST {
        return None;
    }
    let candidates = known.into_iter().map(|known| (distance(word, known), known));
    let (distance, known) = candidates.min()?;
    // Permit one wrong letter, plus one for every six letters of the word, but never permit all
    // letters to be wrong. Suggest nothing if the word itself is known (distance 0).
    let most = (1 + word.len() / 6).min(word.len().saturating_sub(1));
    (1..=most).contains(&distance).then_some(known)
}

/// The maximum length in bytes of a word for which a suggestion is made.
const LONGEST: usize = 64;

/// Returns the number of letters to insert, remove or replace to get from `one` to `other`, ignoring
/// case (the Levenshtein distance).
fn distance(one: &str, other: &str) -> usize {
    // The distances between the letters of `one` read so far and each prefix of `other`.
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (index, letter) in one.chars().enumerate() {
        let (mut diagonal, mut left) = (index, index + 1);
        let mut slots = row.iter_mut();
        if let Some(first) = slots.next() {
            *first = left;
        }
        for (slot, wanted) in slots.zip(other.chars()) {
            let replaced = diagonal + usize::from(!letter.eq_ignore_ascii_case(&wanted));
            diagonal = *slot;
            left = replaced.min(left + 1).min(*slot + 1);
            *slot = left;
        }
    }
    row.last().copied().unwrap_or_default()
}

/// Implements `Debug` for a type whose fields hold secrets, functions or large amounts of data: the
/// output shows the given values instead of the fields. This macro is only for sdam's own crates.
#[doc(hidden)]
#[macro_export]
macro_rules! opaque {
    ($name:ident $(<$generic:ident>)? $(, |$this:ident| $($field:ident: $value:expr),+ $(,)?)?) => {
        impl $(<$generic>)? ::core::fmt::Debug for $name $(<$generic>)? {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                $(let $this = self;)?
                f.debug_struct(stringify!($name))
                    $($(.field(stringify!($field), &$value))+)?
                    .finish_non_exhaustive()
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_suggested_if_few_letters_differ() {
        let check = |word, expected| {
            let known = ["kill", "restart", "readPreference"];
            assert_eq!(closest(word, known), expected, "{word}");
        };
        check("kil", Some("kill"));
        check("restrat", Some("restart"));
        check("READPREFERANCE", Some("readPreference"));
        check("kill", None);
        check("explode", None);
        check(&"readPreference".repeat(5), None);
        assert_eq!(closest("kill", []), None);
        assert_eq!(closest("7", ["a"]), None);
    }

    #[test]
    fn insertions_removals_and_replacements_count_as_one_letter_each() {
        let check = |one, other, expected| {
            assert_eq!(distance(one, other), expected);
            assert_eq!(distance(other, one), expected);
        };
        check("", "abc", 3);
        check("kitten", "SITTING", 3);
        check("flaw", "lawn", 2);
        check("tls", "tls", 0);
    }
}
