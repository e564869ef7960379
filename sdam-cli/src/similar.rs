//! Spelling suggestions.

/// Returns the word of `known` that is most similar to the misspelled `word`, ignoring case.
pub(crate) fn closest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let word = word.to_ascii_lowercase();
    let candidates = known.into_iter().map(|known| {
        let distance = strsim::levenshtein(&word, &known.to_ascii_lowercase());
        (distance, known)
    });
    let (distance, known) = candidates.min()?;
    // Permit one wrong letter, plus one for every six letters of the word, but never permit all
    // letters to be wrong. Suggest nothing if the word itself is known (distance 0).
    let most = (1 + word.len() / 6).min(word.len().saturating_sub(1));
    (1..=most).contains(&distance).then_some(known)
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
}
