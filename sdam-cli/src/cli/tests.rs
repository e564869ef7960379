use super::*;

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
    compare: Compare,
    replay: Replay,
    report: Report,
    serve: Serve,
    sim: Sim,
    watch: Watch,
}

/// Parses the arguments of `export`.
#[cfg(feature = "export")]
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
