use std::time::Duration;

use super::*;
use crate::target::Target;

fn parse(words: &[&str]) -> Result<Option<Command>, clap::Error> {
    let words = ["sdam"].iter().chain(words);
    let matches = command().try_get_matches_from(words)?;
    Ok(Cli::from_arg_matches(&matches)?.command)
}

/// Defines functions that parse the arguments of a subcommand.
macro_rules! parsers {
    ($($name:ident: $variant:ident,)*) => {$(
        pub(crate) fn $name(words: &[&str]) -> $name::Arguments {
            let words: Vec<_> = [stringify!($name)].iter().chain(words).copied().collect();
            match parse(&words) {
                Ok(Some(Command::$variant(arguments))) => arguments,
                other => panic!("{words:?}: {other:?}"),
            }
        }
    )*};
}

parsers! {
    explain: Explain,
    replay: Replay,
    report: Report,
    serve: Serve,
    sim: Sim,
    watch: Watch,
}

/// Parses the arguments of `export`.
pub(crate) fn export(words: &[&str]) -> export::Arguments {
    let words: Vec<_> = ["export"].iter().chain(words).copied().collect();
    match parse(&words) {
        Ok(Some(Command::Export(arguments))) => arguments,
        other => panic!("{words:?}: {other:?}"),
    }
}

#[test]
fn the_definition_of_the_command_line_is_consistent() {
    command().debug_assert();
}

#[test]
fn without_a_subcommand_it_shows_the_demonstration() {
    assert!(parse(&[]).unwrap().is_none());
}

#[test]
fn options_of_watch_may_come_in_any_order() {
    let uri = "mongodb://a/?b=c";
    assert_eq!(watch(&[]), watch::Arguments::default());
    let once = watch(&["--json", uri, "--once"]);
    assert!(once.json && once.once);
    assert_eq!(once.target, Target::new(uri));
    let timeout = Some(Duration::from_millis(2500));
    for words in [
        ["--timeout", "2.5", "--once", uri],
        [uri, "--once", "--timeout", "2.5"],
    ] {
        assert_eq!(watch(&words).timeout, timeout);
    }
    let file = Some("a.jsonl".into());
    assert_eq!(watch(&["--record", "a.jsonl"]).record, file);
    assert_eq!(watch(&["--record=a.jsonl"]).record, file);
}

#[test]
fn options_of_explain_may_come_in_any_order() {
    let picky = explain(&[
        "--read",
        "secondary",
        "--tags",
        "dc:ny,rack:1",
        "--tags=",
        "--load",
        "--max-staleness=120",
        "mongodb://a/?b=c",
    ]);
    let tags = [("dc", "ny"), ("rack", "1")].into_iter().collect();
    assert_eq!(
        picky.tags,
        [tags, sdam_core::read_preference::TagSet::default()]
    );
    assert_eq!(picky.max_staleness, Some(Duration::from_secs(120)));
    assert_eq!(picky.load, Some(1000));
    let writes = explain(&["--load", "7", "--write", "--timeout", ".5"]);
    assert!(writes.write);
    assert_eq!(writes.load, Some(7));
    assert_eq!(writes.timeout, Some(Duration::from_millis(500)));
}

#[test]
fn errors_name_the_argument_and_the_remedy() {
    let check = |words: &[&str], expected: &[&str]| {
        let error = parse(words).unwrap_err();
        assert!(error.use_stderr(), "{words:?}");
        let text = redact(&error.render().to_string());
        for expected in expected {
            assert!(text.contains(expected), "{words:?}: {text}");
        }
    };
    check(&["wach"], &["wach", "watch"]);
    check(&["watch", "--colour"], &["--colour", "--help"]);
    check(&["watch", "--record"], &["--record <FILE>"]);
    for value in ["soon", "-1", "NaN", "inf"] {
        let option = format!("--timeout={value}");
        check(
            &["watch", "--once", &option],
            &["--timeout", value, "a number of seconds, for example 2.5"],
        );
    }
    check(&["watch", "--timeout", "5"], &["--once"]);
    check(
        &["explain", "--read", "fastest"],
        &["fastest", "primaryPreferred"],
    );
    check(&["explain", "--tags", "ny"], &["ny", "dc:ny,rack:1"]);
    check(&["explain", "--load=0"], &["0", "--load"]);
    check(
        &["explain", "--write", "--read=nearest"],
        &["--write", "--read"],
    );
    check(&["export", "--listen", "9216"], &["9216", "--listen"]);
    check(&["serve", "--sharded", "0"], &["0", "--sharded"]);
    check(&["sim", "--seeds", "9"], &["'9'", "0..100"]);
    check(&["sim", "--seeds", "5..5"], &["'5..5'", "0..100"]);
    check(
        &["sim", "--sharded", "1", "--spares", "1"],
        &["--spares", "--sharded"],
    );
    check(
        &["serve", "--sharded", "1", "--standalone"],
        &["--sharded", "--standalone"],
    );
}

#[test]
fn errors_do_not_show_passwords() {
    let words = ["watch", "mongodb://a", "mongodb://u:secret@b"];
    let text = redact(&parse(&words).unwrap_err().render().to_string());
    assert!(
        text.contains("mongodb://***@b") && !text.contains("secret"),
        "{text}"
    );
}
