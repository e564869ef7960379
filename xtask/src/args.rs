//! Command line arguments, taken one by one.

use std::collections::VecDeque;

use crate::Result;

/// The arguments that are not taken yet.
///
/// Take the flags and options first, then the positional arguments, then call [`Args::finish`],
/// which reports the rest as an error. Everything behind `--` is positional.
#[derive(Debug)]
pub(crate) struct Args {
    rest: VecDeque<String>,
    verbatim: VecDeque<String>,
}

impl Args {
    /// Reads the arguments of this process, without the program's name.
    pub(crate) fn from_env() -> Self {
        Self::new(
            std::env::args_os()
                .skip(1)
                .map(|arg| arg.to_string_lossy().into_owned()),
        )
    }

    pub(crate) fn new(args: impl IntoIterator<Item = String>) -> Self {
        let mut rest: VecDeque<String> = args.into_iter().collect();
        let end = rest
            .iter()
            .position(|arg| arg == "--")
            .unwrap_or(rest.len());
        let verbatim = rest.split_off(end).into_iter().skip(1).collect();
        Self { rest, verbatim }
    }

    /// Takes every occurrence of `name` and returns whether there was one.
    pub(crate) fn flag(&mut self, name: &str) -> bool {
        let before = self.rest.len();
        self.rest.retain(|arg| arg != name);
        self.rest.len() < before
    }

    /// Takes one `name VALUE` or `name=VALUE`.
    ///
    /// Call it again for an option that may be given several times.
    ///
    /// # Errors
    /// When `name` is the last argument, or the next one is an option too.
    pub(crate) fn option(&mut self, name: &str) -> Result<Option<String>> {
        let is_option = |arg: &String| {
            arg.strip_prefix(name)
                .is_some_and(|tail| tail.is_empty() || tail.starts_with('='))
        };
        let Some(at) = self.rest.iter().position(is_option) else {
            return Ok(None);
        };
        let arg = self.rest.remove(at).unwrap_or_default();
        if let Some((_, value)) = arg.split_once('=') {
            return Ok(Some(value.to_owned()));
        }
        match self.rest.get(at) {
            Some(value) if !value.starts_with("--") => Ok(self.rest.remove(at)),
            _ => Err(format!("{name} needs a value").into()),
        }
    }

    /// Takes the next argument that is not an option.
    pub(crate) fn positional(&mut self) -> Option<String> {
        match self.rest.iter().position(|arg| !arg.starts_with('-')) {
            Some(at) => self.rest.remove(at),
            None => self.verbatim.pop_front(),
        }
    }

    /// Ends the parsing.
    ///
    /// # Errors
    /// When an argument was not taken.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.rest.append(&mut self.verbatim);
        match self.rest.front() {
            None => Ok(()),
            Some(arg) => Err(format!("unexpected argument: {arg}").into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Args;

    fn args(line: &str) -> Args {
        Args::new(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn option_takes_its_value_in_both_spellings() {
        for line in [
            "run --seed 7 --all",
            "run --seed=7 --all",
            "--seed 7 run --all",
        ] {
            let mut args = args(line);
            assert_eq!(
                args.option("--seed").unwrap().as_deref(),
                Some("7"),
                "{line}"
            );
            assert_eq!(args.option("--seed").unwrap(), None, "{line}");
            assert!(args.flag("--all"), "{line}");
            assert_eq!(args.positional().as_deref(), Some("run"), "{line}");
            args.finish().unwrap();
        }
    }

    #[test]
    fn option_without_value_is_an_error() {
        for line in ["--seed", "--seed --all"] {
            assert!(args(line).option("--seed").is_err(), "{line}");
        }
    }

    #[test]
    fn an_option_does_not_match_a_longer_name() {
        let mut args = args("--seeds 3");
        assert_eq!(args.option("--seed").unwrap(), None);
        assert_eq!(args.option("--seeds").unwrap().as_deref(), Some("3"));
    }

    #[test]
    fn arguments_after_two_dashes_are_positional() {
        let mut args = args("-- --all");
        assert!(!args.flag("--all"));
        assert_eq!(args.positional().as_deref(), Some("--all"));
    }

    #[test]
    fn unused_arguments_are_errors() {
        let error = args("--sed 7").finish().unwrap_err();
        assert_eq!(error.to_string(), "unexpected argument: --sed");
    }
}
