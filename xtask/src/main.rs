//! `cargo xtask`: the tool that builds, tests and measures the workspace.
//!
//! A subcommand is one variant of [`Subcommand`] and one module of the same name with a `USAGE`
//! text and a `run(Args)` function. Results go to standard output, progress to standard error.

mod args;
mod bench;
mod cargo;
mod conformance;
mod features;
mod foreign;
mod fuzz;
mod layers;
mod loom;
mod mongod;
mod mutants;
mod package;
mod sim;
mod spec_test;
mod states;
mod test;
mod tidy;

use std::error::Error;
use std::process::ExitCode;

use crate::args::Args;

/// The result of every subcommand: the error's message is printed and the exit code is 1.
type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

/// The subcommands, in the order of the help.
#[derive(Clone, Copy, Debug)]
enum Subcommand {
    Bench,
    Conformance,
    Features,
    Foreign,
    Fuzz,
    Layers,
    Loom,
    Mongod,
    Mutants,
    Package,
    Sim,
    SpecTest,
    States,
    Test,
    Tidy,
}

impl Subcommand {
    const ALL: &[Self] = &[
        Self::Bench,
        Self::Conformance,
        Self::Features,
        Self::Foreign,
        Self::Fuzz,
        Self::Layers,
        Self::Loom,
        Self::Mongod,
        Self::Mutants,
        Self::Package,
        Self::Sim,
        Self::SpecTest,
        Self::States,
        Self::Test,
        Self::Tidy,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Bench => "bench",
            Self::Conformance => "conformance",
            Self::Features => "features",
            Self::Foreign => "foreign",
            Self::Fuzz => "fuzz",
            Self::Layers => "layers",
            Self::Loom => "loom",
            Self::Mongod => "mongod",
            Self::Mutants => "mutants",
            Self::Package => "package",
            Self::Sim => "sim",
            Self::SpecTest => "spec-test",
            Self::States => "states",
            Self::Test => "test",
            Self::Tidy => "tidy",
        }
    }

    /// Returns the text of `cargo xtask NAME --help`; the overview shows its first line.
    const fn usage(self) -> &'static str {
        match self {
            Self::Bench => bench::USAGE,
            Self::Conformance => conformance::USAGE,
            Self::Features => features::USAGE,
            Self::Foreign => foreign::USAGE,
            Self::Fuzz => fuzz::USAGE,
            Self::Layers => layers::USAGE,
            Self::Loom => loom::USAGE,
            Self::Mongod => mongod::USAGE,
            Self::Mutants => mutants::USAGE,
            Self::Package => package::USAGE,
            Self::Sim => sim::USAGE,
            Self::SpecTest => spec_test::USAGE,
            Self::States => states::USAGE,
            Self::Test => test::USAGE,
            Self::Tidy => tidy::USAGE,
        }
    }

    fn run(self, args: Args) -> Result<()> {
        match self {
            Self::Bench => bench::run(args),
            Self::Conformance => conformance::run(args),
            Self::Features => features::run(args),
            Self::Foreign => foreign::run(args),
            Self::Fuzz => fuzz::run(args),
            Self::Layers => layers::run(args),
            Self::Loom => loom::run(args),
            Self::Mongod => mongod::run(args),
            Self::Mutants => mutants::run(args),
            Self::Package => package::run(args),
            Self::Sim => sim::run(args),
            Self::SpecTest => spec_test::run(args),
            Self::States => states::run(args),
            Self::Test => test::run(args),
            Self::Tidy => tidy::run(args),
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|subcommand| subcommand.name() == name)
    }
}

fn main() -> ExitCode {
    match dispatch(Args::from_env()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(mut args: Args) -> Result<()> {
    let help = args.flag("--help") | args.flag("-h");
    match args.positional() {
        None => {
            print!("{}", overview());
            Ok(())
        }
        Some(name) => {
            let subcommand = Subcommand::named(&name)
                .ok_or_else(|| format!("no such subcommand: {name}\n\n{}", overview()))?;
            if help {
                println!("{}", subcommand.usage());
                return Ok(());
            }
            subcommand.run(args)
        }
    }
}

fn overview() -> String {
    let subcommands: String = Subcommand::ALL
        .iter()
        .map(|subcommand| {
            let summary = subcommand.usage().lines().next().unwrap_or_default();
            [&format!("  {:11} ", subcommand.name()), summary, "\n"].concat()
        })
        .collect();
    format!(
        "usage: cargo xtask SUBCOMMAND [OPTIONS]\n\n{subcommands}\n\
         `cargo xtask SUBCOMMAND --help` prints details.\n"
    )
}
