use super::*;

fn parse(words: &[&str]) -> Result<Option<Command>, clap::Error> {
    let words = ["sdam"].iter().chain(words);
    let matches = command().try_get_matches_from(words)?;
    Ok(Cli::from_arg_matches(&matches)?.command)
}

/// Defines a function for each listed subcommand that parses the subcommand's arguments.
macro_rules! parsers {
    ($($(#[$meta:meta])* $name:ident: $variant:ident,)*) => {$(
        $(#[$meta])*
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
    #[cfg(feature = "export")]
    export: Export,
    serve: Serve,
    watch: Watch,
}

#[test]
fn the_definition_of_the_command_line_is_consistent() {
    command().debug_assert();
}
