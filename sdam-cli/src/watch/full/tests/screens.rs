//! Complete screens before, during and after a failover, and in other situations.

use std::fs;

use super::*;

const HOSTS: [&str; 3] = ["db-0.example.com", "db-1.example.com", "db-2.example.com"];

fn healthy() -> Script {
    let tags = |dc: &str| bson::doc! { "tags": { "dc": dc } };
    let [a, b, c] = HOSTS;
    let script = Script::replica_set(&HOSTS);
    (1..=12).fold(script, |script, number| {
        script
            .at(number * 5000)
            .answers_with(a, Role::Primary(7), 2 + number % 2, &tags("ny"))
            .answers_with(b, Role::Secondary, 3, &tags("ny"))
            .answers_with(c, Role::Secondary, 30 + number, &tags("la"))
    })
}

fn outage() -> Script {
    let [a, b, c] = HOSTS;
    healthy()
        .at(61_000)
        .fails(a, "connection reset by peer")
        .at(61_031)
        .answers(b, Role::Secondary, 3)
        .answers(c, Role::Secondary, 40)
        .at(62_000)
        .fails(a, "connection refused")
        .at(65_700)
        .fails(a, "connection refused")
}

fn recovered() -> Script {
    outage().at(66_988).answers(HOSTS[1], Role::Primary(8), 3).at(75_000).answers(
        HOSTS[0],
        Role::Secondary,
        2,
    )
}

/// Returns a sharded cluster of two routers, one of which does not answer.
fn sharded() -> Script {
    Script::open("mongodb://router-0.example.com,router-1.example.com")
        .at(100)
        .answers("router-0.example.com", Role::Mongos, 4)
        .at(900)
        .fails("router-1.example.com", "connection refused")
        .at(20_000)
        .answers("router-0.example.com", Role::Mongos, 5)
        .fails("router-1.example.com", "connection refused")
}

/// Returns a set of 50 members, of which two are down.
fn many() -> Script {
    let hosts: Vec<String> = (0..50).map(|number| format!("m{number:02}.example.com")).collect();
    let hosts: Vec<&str> = hosts.iter().map(|host| &**host).collect();
    Script::replica_set(&hosts)
        .at(5000)
        .fails("m17.example.com", "connection refused")
        .fails("m42.example.com", "connection reset by peer")
        .at(9000)
}

/// Returns a set with wide characters in its host names, and with one long host name.
fn wide() -> Script {
    let long = "cluster0-shard-00-02.abcde.mongodb.example.net:27018";
    Script::replica_set(&["数据库一.例え.jp", "数据库二.例え.jp", long])
        .at(2000)
        .fails("数据库二.例え.jp", "connection refused")
}

/// Returns a deployment whose connection string has a wrong set name.
fn wrong_name() -> Script {
    Script::open("mongodb://a.example.com/?replicaSet=other")
        .at(100)
        .answers("a.example.com", Role::Primary(3), 2)
        .at(4000)
}

/// Returns a set that never had a primary.
fn starting() -> Script {
    Script::open("mongodb://a.example.com,b.example.com/?replicaSet=rs0")
        .at(100)
        .fails("a.example.com", "connection refused")
        .at(12_300)
        .answers("b.example.com", Role::Secondary, 3)
}

/// Compares frames with the files whose names begin with `name`.
///
/// `SDAM_UPDATE_SCREENS=1 cargo test -p sdam-cli screens` writes the files instead.
fn check(name: &str, script: &Script, state: &State, sizes: &[(u16, u16)], glyphs: Glyphs) {
    for (width, height) in sizes {
        let text = frame(script, state, (*width, *height), glyphs);
        let file = format!("{name}-{width}x{height}.txt");
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/watch/full/tests/screens");
        let path = PathBuf::from(folder).join(&file);
        if env::var_os("SDAM_UPDATE_SCREENS").is_some() {
            fs::write(path, text).unwrap();
            continue;
        }
        let expected = fs::read_to_string(path).unwrap();
        assert_eq!(text, expected, "{file} is now:\n{text}");
    }
}

const SIZES: [(u16, u16); 3] = [(40, 12), (80, 24), (120, 40)];

#[test]
fn each_situation_has_its_screen() {
    let usual = |name, script: Script, sizes: &[_]| {
        check(name, &script, &state(), sizes, Glyphs::Unicode);
    };
    usual("healthy", healthy(), &SIZES);
    usual("healthy", healthy(), &[(160, 20), (60, 7)]);
    usual("outage", outage(), &SIZES);
    check("outage-ascii", &outage(), &state(), &[(80, 24), (30, 1)], Glyphs::Ascii);
    let silent = healthy().at(66_000).falls_silent(HOSTS[0], 6_000).at(69_000);
    usual("silent", silent, &[(80, 24)]);
    usual("recovered", recovered(), &SIZES);
    // The new primary answers before the old one is lost.
    let handover = healthy().at(61_000).answers(HOSTS[1], Role::Primary(8), 3).at(63_000);
    usual("handover", handover, &[(80, 24)]);
    usual("sharded", sharded(), &SIZES);
    usual("many", many(), &SIZES);
    usual("wide", wide(), &SIZES);
    usual("wrong-name", wrong_name(), &[(80, 24)]);
    usual("starting", starting(), &[(80, 24)]);
    let mut last = state();
    last.selected = Some(ServerAddress::parse("m49.example.com").unwrap());
    check("many-selected", &many(), &last, &SIZES, Glyphs::Unicode);
}

#[test]
fn an_old_failover_takes_one_line() {
    let size = (80, 24);
    let early = frame(&recovered().at(180_000), &state(), size, Glyphs::Ascii);
    assert!(early.contains("others checked +"), "{early}");
    let late = frame(&recovered().at(190_000), &state(), size, Glyphs::Ascii);
    assert!(!late.contains("others checked +"), "{late}");
    assert!(
        late.contains("FAILOVER 1: 5.988 s without a primary, db-0 > db-1, 2m03s ago"),
        "{late}"
    );
}

#[test]
fn tags_are_found_as_they_are_shown_and_as_they_are_logged() {
    for filter in ["dc:la", "{dc: la}", "DC: la"] {
        let mut state = state();
        state.filter = filter.to_owned();
        let frame = frame(&healthy(), &state, (80, 12), Glyphs::Ascii);
        let shows = |name: &str| frame.contains(&format!("\n  {name} "));
        assert_eq!(["db-0", "db-1", "db-2"].map(shows), [false, false, true], "{frame}");
    }
}

#[test]
fn details_help_filter_and_pause() {
    let script = outage();
    let mut details = state();
    details.has_details = true;
    check("details", &script, &details, &[(80, 24)], Glyphs::Unicode);
    let mut help = state();
    help.has_help = true;
    check("help", &script, &help, &[(80, 24), (40, 20)], Glyphs::Unicode);
    let mut filter = state();
    filter.filter = "SECOND".to_owned();
    filter.is_filtering = true;
    check("filter", &script, &filter, &[(80, 12)], Glyphs::Unicode);
    let mut paused = state();
    paused.press(keys::Key::Char('p'), &[], &script.model);
    check("paused", &script.at(90_000), &paused, &[(80, 12)], Glyphs::Unicode);
}
