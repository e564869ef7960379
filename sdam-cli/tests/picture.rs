//! Tests that the full screen shows a failover of a real replica set, and draws a picture of this
//! screen.

use std::{env, fmt::Write as _, fs, path::Path, sync::Arc, time::Duration};

use sdam_live::{Certificates, MemberSpec, ReplicaSet, ServerTls, Terminal, or_skip};

/// The size of the terminal, in characters.
const SIZE: (u16, u16) = (100, 27);
/// The size of a character, in pixels.
const CELL: (f64, f64) = (8.4, 18.0);
const MARGIN: f64 = 12.0;

/// The picture in the README.
const PICTURE: &str = "../docs/images/watch.svg";

/// The settings for a picture of the screen. The picture in the README shows five members, a minute
/// of history and a slow election. The test uses settings that take less time.
struct Scene {
    members: usize,
    election_timeout: Duration,
    before: &'static str,
    outage: &'static str,
}

const TEST: Scene = Scene {
    members: 3,
    election_timeout: Duration::from_secs(2),
    before: "OK  writable for",
    outage: "!! NO PRIMARY",
};

const README: Scene = Scene {
    members: 5,
    election_timeout: Duration::from_secs(10),
    before: " 1m",
    outage: "!! NO PRIMARY 00:04",
};

/// Also draws the picture in the README if the test is run by
/// `SDAM_UPDATE_SCREENS=1 cargo test -p sdam-cli --test picture -- --ignored`.
#[test]
#[ignore = "deep: real servers"]
fn a_real_failover_is_seen_on_the_full_screen() {
    let update = env::var_os("SDAM_UPDATE_SCREENS").is_some();
    let scene = if update { README } else { TEST };
    let Some(terminal) = or_skip(Terminal::open(SIZE.0, SIZE.1)).unwrap() else {
        return;
    };
    // Use TLS, because the members show the host names of their horizons only to clients that use
    // it.
    let certificates = Arc::new(Certificates::create().unwrap());
    let places = ["ny", "ny", "ny", "la", "la"].into_iter().enumerate();
    let members = places.take(scene.members).map(|(number, place)| {
        let member = MemberSpec::new().horizon(&format!("{}:27017", name(number)));
        member.tag("dc", place)
    });
    let set = ReplicaSet::builder(None)
        .tls(ServerTls::new(&certificates))
        .election_timeout(scene.election_timeout)
        .start(&members.collect::<Vec<_>>());
    let Some(set) = or_skip(set).unwrap() else {
        return;
    };

    terminal.line(&command(&set, &certificates)).unwrap();
    terminal.wait_for("OK  writable for").unwrap();
    let primary = set.primary().unwrap();
    if update {
        terminal.wait_for(" 24s").unwrap();
        let last = (0..set.size()).rfind(|member| *member != primary).unwrap();
        set.member(last).kill().unwrap();
        terminal.wait_for(&format!("1 of {} DOWN: ", set.size())).unwrap();
    }
    terminal.wait_for(scene.before).unwrap();
    set.member(primary).kill().unwrap();
    let text = terminal.wait_for(scene.outage).unwrap();
    let picture = svg(&terminal.coloured().unwrap());
    let lost = format!("was db-{primary} ");
    assert!(text.contains(&lost) && text.contains("cause: "), "{text}");
    assert!(picture.contains("NO PRIMARY"), "{picture}");
    assert!(!picture.contains('\x1b'), "{picture}");
    if update {
        fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join(PICTURE), picture).unwrap();
    }

    terminal.wait_for("FAILOVER 1: ").unwrap();
    terminal.key("q").unwrap();
    terminal.wait_for("exit 0").unwrap();
}

/// Returns the host name of a member.
fn name(number: usize) -> String {
    format!("db-{number}.sdam.example")
}

/// Returns the shell command that watches the set with the host names of its members.
fn command(set: &ReplicaSet, certificates: &Certificates) -> String {
    let names: Vec<_> = (0..set.size()).map(name).collect();
    let places = names.iter().zip(set.members()).map(|(name, member)| {
        let place = member.host();
        format!("{name}:27017={place}")
    });
    let places = places.collect::<Vec<_>>().join(",");
    let options =
        format!("readPreference=nearest&heartbeatFrequencyMS=2000&{}", certificates.options());
    let uri = format!("mongodb://{}/?replicaSet=rs0&{options}", names.join(","));
    let program = env!("CARGO_BIN_EXE_sdam");
    format!("clear; {program} watch --translate {places} '{uri}'; echo \"exit $?\"")
}

/// Draws the contents of a terminal on a dark background. `shown` is the text with escape sequences
/// for colours.
fn svg(shown: &str) -> String {
    let (wide, high) =
        (f64::from(SIZE.0) * CELL.0 + 2.0 * MARGIN, f64::from(SIZE.1) * CELL.1 + 2.0 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {wide:.0} {high:.0}\" \
         font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" font-size=\"14\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#16181d\"/>\n"
    );
    let mut look = Look::default();
    for (row, line) in shown.lines().enumerate() {
        let baseline = MARGIN + (row as f64 + 0.75) * CELL.1;
        let mut column = 0;
        for (number, piece) in line.split("\x1b[").enumerate() {
            let text = match piece.split_once('m').filter(|_| number > 0) {
                Some((codes, text)) => {
                    look.change(codes);
                    text
                }
                None => piece,
            };
            let length = text.chars().count();
            if !text.trim().is_empty() {
                let (x, length) = (MARGIN + column as f64 * CELL.0, length as f64 * CELL.0);
                // Writing to a string cannot fail.
                let _ = writeln!(
                    svg,
                    "<text x=\"{x:.1}\" y=\"{baseline:.1}\" textLength=\"{length:.1}\" \
                     xml:space=\"preserve\"{}>{}</text>",
                    look.attributes(),
                    text.replace('&', "&amp;").replace('<', "&lt;")
                );
            }
            column += length;
        }
    }
    svg + "</svg>\n"
}

/// The style of a piece of text.
#[derive(Default)]
struct Look {
    colour: Option<&'static str>,
    is_bold: bool,
    is_dim: bool,
}

impl Look {
    /// Changes the style according to the codes of an escape sequence.
    fn change(&mut self, codes: &str) {
        // A terminal may also specify the basic colours as the first entries of the 256-colour
        // table.
        let codes = codes.replace("38;5;", "3");
        codes.split(';').for_each(|code| match code {
            "" | "0" => *self = Self::default(),
            "1" => self.is_bold = true,
            "2" => self.is_dim = true,
            "22" => (self.is_bold, self.is_dim) = (false, false),
            "31" => self.colour = Some("#f2777a"),
            "32" => self.colour = Some("#7ec77e"),
            "33" => self.colour = Some("#e0b95a"),
            "36" => self.colour = Some("#6cc5d2"),
            "39" => self.colour = None,
            // The only other code that is allowed selects the default background.
            code => assert_eq!(code, "49", "a colour that is not drawn"),
        });
    }

    fn attributes(&self) -> String {
        let plain = if self.is_dim { "#8a93a3" } else { "#d7dae0" };
        let fill = self.colour.unwrap_or(plain);
        let weight = if self.is_bold { " font-weight=\"bold\"" } else { "" };
        format!(" fill=\"{fill}\"{weight}")
    }
}
