//! Text and tables in HTML.

/// Escapes a string for use in HTML elements, and in attributes with double quotes.
pub(super) fn text(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // Control characters are not allowed in HTML.
            letter if letter.is_control() && letter != '\n' => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// Returns a table row; `cells` contain HTML.
pub(super) fn row(cells: &[String]) -> String {
    let cells: String = cells.iter().flat_map(|cell| ["<td>", cell]).collect();
    format!("<tr>{cells}\n")
}

/// Returns a table with the given `headings`; `rows` must be HTML.
pub(super) fn table(class: &str, headings: &[&str], rows: &str) -> String {
    let headings: String = headings.iter().flat_map(|it| ["<th>", it]).collect();
    format!(
        "<div class=\"wide\"><table class=\"{class}\"><thead><tr>{headings}<tbody>\n{rows}</table></div>\n"
    )
}
