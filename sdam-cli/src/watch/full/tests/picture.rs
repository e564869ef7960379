//! The picture of the README: a frame as SVG.

use std::fmt::Write;

use ratatui::{
    buffer::{Buffer, Cell},
    layout::Rect,
    style::{Color, Modifier},
};

use super::*;

/// The size of a character cell, in pixels.
const CELL: (f64, f64) = (8.4, 18.0);
const MARGIN: f64 = 12.0;

/// Draws the cells of `buffer` on a dark background.
fn svg(buffer: &Buffer) -> String {
    let Rect { width, height, .. } = buffer.area;
    let (wide, high) = (
        f64::from(width) * CELL.0 + 2.0 * MARGIN,
        f64::from(height) * CELL.1 + 2.0 * MARGIN,
    );
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {wide:.0} {high:.0}\" \
         font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" font-size=\"14\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#16181d\"/>\n"
    );
    for (row, cells) in buffer.content.chunks(usize::from(width)).enumerate() {
        let baseline = MARGIN + (row as f64 + 0.75) * CELL.1;
        let mut column = 0;
        for run in cells.chunk_by(|one, other| one.style() == other.style()) {
            let text: String = run.iter().map(Cell::symbol).collect();
            if !text.trim().is_empty() {
                let (x, length) = (MARGIN + column as f64 * CELL.0, run.len() as f64 * CELL.0);
                // Writing to a string cannot fail.
                let _ = writeln!(
                    svg,
                    "<text x=\"{x:.1}\" y=\"{baseline:.1}\" textLength=\"{length:.1}\" \
                     xml:space=\"preserve\"{}>{}</text>",
                    look(run.first().unwrap()),
                    escaped(&text)
                );
            }
            column += run.len();
        }
    }
    svg + "</svg>\n"
}

/// Returns the attributes of a style.
fn look(cell: &Cell) -> String {
    let fill = match cell.fg {
        Color::Green => "#7ec77e",
        Color::Cyan => "#6cc5d2",
        Color::Yellow => "#e0b95a",
        Color::Red => "#f2777a",
        _ if cell.modifier.contains(Modifier::DIM) => "#8a93a3",
        _ => "#d7dae0",
    };
    let weight = if cell.modifier.contains(Modifier::BOLD) {
        " font-weight=\"bold\""
    } else {
        ""
    };
    format!(" fill=\"{fill}\"{weight}")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// The members of a set in two places, with the round-trip time to each.
const MEMBERS: [(&str, &str, u64); 5] = [
    ("db-0.example.com", "ny", 1),
    ("db-1.example.com", "ny", 2),
    ("db-2.example.com", "ny", 4),
    ("db-3.example.com", "la", 18),
    ("db-4.example.com", "la", 21),
];

/// All members but those in `without` answer a check, `seconds` after the begin.
fn checked(script: Script, seconds: u64, without: &[&str]) -> Script {
    let members = MEMBERS.into_iter();
    let members = members.filter(|(host, ..)| !without.contains(host));
    members.fold(script.at(seconds * 1000), |script, (host, dc, rtt)| {
        let role = if host == MEMBERS[0].0 {
            Role::Primary(7)
        } else {
            Role::Secondary
        };
        let rtt = rtt + [0, 1, 0, 3, 1, 0, 7][(seconds / 4 + rtt) as usize % 7];
        // The other place is behind.
        let lag = if dc == "la" { 2 } else { 0 };
        let written = bson::DateTime::from_millis(EPOCH + (seconds as i64 - lag) * 1000);
        let fields = bson::doc! { "tags": { "dc": dc }, "lastWrite": { "lastWriteDate": written } };
        script.answers_with(host, role, rtt, &fields)
    })
}

/// A member has been down for a while, and now the primary is lost as well.
fn incident() -> Script {
    let hosts = MEMBERS.map(|(host, ..)| host);
    let [primary, .., last] = hosts;
    let refused = "connection refused";
    let uri = format!("mongodb://{}/?replicaSet=rs0", hosts.join(","));
    let script = (0..18).fold(Script::open(&uri), |script, step| {
        checked(script, step * 4, &[])
    });
    let script = (18..27).fold(script, |script, step| {
        checked(script, step * 4, &[last]).fails(last, refused)
    });
    let script = script
        .at(106_512)
        .fails(primary, "connection reset by peer");
    let script = script.at(106_514).fails(primary, refused);
    checked(script, 107, &[primary, last])
        .fails(last, refused)
        .at(109_018)
        .fails(primary, refused)
        .at(111_212)
        .fails(primary, refused)
}

/// `SDAM_UPDATE_SCREENS=1 cargo test -p sdam-cli picture` draws it again.
#[test]
fn the_picture_of_the_readme_shows_the_screen_as_it_is() {
    let script = incident();
    let mut buffer = Buffer::empty(Rect::new(0, 0, 100, 27));
    let state = state();
    let scene = Scene {
        model: &script.model,
        state: &state,
        wall: Wall {
            at: Instant::EPOCH,
            time: UNIX_EPOCH + Duration::from_millis(EPOCH as u64),
        },
        source: "LIVE",
        recording: "REC 214 kB",
        note: None,
    };
    let mut canvas = Canvas::new(&mut buffer, Glyphs::Unicode, Palette::Ansi);
    frame::draw(&mut canvas, &scene);
    let picture = svg(&buffer);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/images/watch.svg");
    if env::var_os("SDAM_UPDATE_SCREENS").is_some() {
        std::fs::write(path, picture).unwrap();
        return;
    }
    // A package has no pictures.
    if let Ok(expected) = std::fs::read_to_string(path) {
        assert_eq!(picture, expected);
    }
}
