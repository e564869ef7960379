//! Tests that compare the lines of frames on a test terminal.

use ratatui::backend::TestBackend;
use sdam_core::{
    read_preference::{ReadMode, ReadPreference},
    time::{Instant, UnixTime},
};

use super::{
    super::model::tests::{EPOCH, Role, Script},
    *,
};
use crate::{terminal::Palette, time::Walls};

mod screens;

/// Draws a frame of `script`, and returns its lines without trailing spaces.
fn frame(script: &Script, state: &State, size: (u16, u16), glyphs: Glyphs) -> String {
    let mut painter = Painter::new(TestBackend::new(size.0, size.1));
    paint(&mut painter, script, state, glyphs);
    shown(&painter)
}

fn paint(
    painter: &mut Painter<TestBackend>,
    script: &Script,
    state: &State,
    glyphs: Glyphs,
) -> bool {
    let mut walls = Walls::default();
    walls.note(Instant::EPOCH, UnixTime::from_millis(EPOCH as u64));
    let scene = Scene {
        model: state.frozen.as_deref().unwrap_or(&script.model),
        state,
        walls: &walls,
        source: "LIVE",
        recording: "REC 14 kB",
        note: None,
    };
    let drawn = painter.paint(|buffer| {
        let mut canvas = Canvas::new(buffer, glyphs, Palette::Ansi);
        frame::draw(&mut canvas, &scene)
    });
    drawn.unwrap()
}

fn shown(painter: &Painter<TestBackend>) -> String {
    let buffer = painter.backend.buffer();
    let lines = buffer.content.chunks(usize::from(buffer.area.width).max(1));
    let lines = lines.map(|cells| {
        let mut line = String::new();
        let mut hidden = 0;
        for cell in cells {
            if hidden == 0 {
                line.push_str(cell.symbol());
                hidden = canvas::width(cell.symbol());
            }
            hidden = hidden.saturating_sub(1);
        }
        format!("{}\n", line.trim_end())
    });
    lines.collect()
}

fn state() -> State {
    State::new(ReadPreference::new(ReadMode::Nearest))
}

#[test]
fn a_storm_of_sizes_is_survived_and_no_line_is_too_wide() {
    let hosts = ["数据库-0.例え.example", "b", "c"];
    let script = Script::replica_set(&hosts).at(900).fails("b", "connection refused");
    let mut painter = Painter::new(TestBackend::new(80, 24));
    let mut details = state();
    details.has_details = true;
    let mut help = state();
    help.has_help = true;
    let sizes = [0, 1, 2, 7, 8, 39, 40, 41, 60, 79, 80, 100, 120, 150, 300];
    for width in sizes {
        for height in sizes {
            painter.backend.resize(width, height);
            for state in [&state(), &details, &help] {
                paint(&mut painter, &script, state, Glyphs::Unicode);
                for line in shown(&painter).lines() {
                    assert!(canvas::width(line) <= usize::from(width), "{width} {line}");
                }
            }
        }
    }
}

#[test]
fn an_idle_screen_writes_nothing_but_its_changes() {
    let script = Script::replica_set(&["a", "b"]).at(60_200);
    let mut painter = Painter::new(TestBackend::new(80, 24));
    assert!(paint(&mut painter, &script, &state(), Glyphs::Ascii));
    assert!(!paint(&mut painter, &script, &state(), Glyphs::Ascii));
    // A quarter of a second later, no cell has changed.
    let script = script.at(60_450);
    assert!(!paint(&mut painter, &script, &state(), Glyphs::Ascii));
    // While the view is frozen, nothing but the clock can change.
    let mut frozen = state();
    frozen.press(keys::Key::Char('p'), &[], &script.model);
    paint(&mut painter, &script, &frozen, Glyphs::Ascii);
    let script = script.at(90_000);
    assert!(!paint(&mut painter, &script, &frozen, Glyphs::Ascii));
}

#[test]
fn escape_sequences_of_servers_do_not_reach_the_terminal() {
    let script = Script::replica_set(&["a", "b"])
        .at(900)
        .fails("b", "x\x1b]0;title\x07\x1b[2Jreset \u{202e}evil");
    for has_details in [false, true] {
        let mut state = state();
        state.has_details = has_details;
        let mut painter = Painter::new(TestBackend::new(120, 40));
        paint(&mut painter, &script, &state, Glyphs::Unicode);
        let text = shown(&painter);
        assert!(text.contains("\u{fffd}[2J"), "{text}");
        let bad = |letter: char| (letter.is_control() && letter != '\n') || letter == '\u{202e}';
        assert!(!text.contains(bad), "{text}");
    }
}

#[test]
fn recordings_are_named_by_the_time() {
    let name = recording_name(UnixTime::from_millis(EPOCH as u64 + 123));
    assert_eq!(name, PathBuf::from("sdam-20231114T221320Z.jsonl"));
}
