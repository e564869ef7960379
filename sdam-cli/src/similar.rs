//! Spelling suggestions.

/// Returns the known word most similar to an unknown one, ignoring case.
pub(crate) fn closest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let word = word.to_ascii_lowercase();
    let candidates = known.into_iter().map(|known| {
        let distance = distance(&word, &known.to_ascii_lowercase());
        (distance, known)
    });
    let (distance, known) = candidates.min()?;
    // Three of twelve letters may differ, but not all; the word itself is not a misspelling.
    let most = (1 + word.len() / 6).min(word.len().saturating_sub(1));
    (1..=most).contains(&distance).then_some(known)
}

/// Returns the number of letters to insert, remove or replace.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (index, letter) in a.chars().enumerate() {
        let (mut diagonal, mut left) = (index, index + 1);
        let others = b.chars().zip(row.iter_mut().skip(1));
        for (other, above) in others {
            let replaced = diagonal + usize::from(letter != other);
            diagonal = *above;
            left = replaced.min(*above + 1).min(left + 1);
            *above = left;
        }
        if let Some(first) = row.first_mut() {
            *first = index + 1;
        }
    }
    row.last().copied().unwrap_or_default()
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
        assert_eq!(closest("kill", []), None);
        assert_eq!(closest("7", ["a"]), None);
    }

    #[test]
    fn the_distance_counts_changed_letters() {
        let check = |a, b, expected| assert_eq!(distance(a, b), expected, "{a} {b}");
        check("", "abc", 3);
        check("abc", "", 3);
        check("abc", "abd", 1);
        check("abc", "acb", 2);
        check("kitten", "sitting", 3);
    }
}
