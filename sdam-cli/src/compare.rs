//! Finds disagreements between clients in two or more recordings of the same period.

mod clocks;
mod json;
mod sweep;
#[cfg(test)]
mod tests;
mod text;
mod views;

use std::{
    io::{self, Write},
    path::PathBuf,
    time::Duration,
};

use clap::Args;

use self::{
    clocks::Clock,
    sweep::{Period, periods},
    views::{Client, Subject},
};
use crate::{
    exit::Exit, failure::Failure, recording::Recording, terminal::json_line, values::seconds,
};

/// The text that the help shows after the options.
const AFTER: &str = "\
A recording begins to count when its client knows the state of each server. Differences between \
the clocks of the hosts are estimated by the times in the servers' replies, and taken out.

Exit codes: 0 no disagreement was longer than the tolerance, 1 one was, 3 the command line is wrong \
or the recordings cannot be compared, 4 another failure.

Example, after `sdam watch --record web-1.jsonl --vantage web-1 URI` on one host and the same with \
web-2 on another:
  sdam compare web-1.jsonl web-2.jsonl";

/// Compares what clients in different places saw of one deployment.
///
/// It shows when they disagreed about the primary or about the type of a server.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(after_help = AFTER)]
#[non_exhaustive]
pub struct Arguments {
    /// Recordings by `sdam watch --record FILE --vantage NAME`.
    #[arg(required = true, num_args = 2.., value_name = "RECORDING")]
    pub recordings: Vec<PathBuf>,
    /// The longest disagreement to ignore: clients learn of a change at different times.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "0.5")]
    pub tolerance: Duration,
    /// Print one JSON object instead of text for people.
    #[arg(long)]
    pub json: bool,
}

/// Compares the recordings named by `arguments`.
///
/// # Errors
///
/// If writing to a stream fails. Other errors are printed and set the exit code.
pub fn run(
    arguments: &Arguments,
    mut output: impl Write,
    mut remarks: impl Write,
) -> io::Result<Exit> {
    let recordings = arguments.recordings.iter().map(|path| Recording::open(path));
    let recordings = match recordings.collect::<Result<Vec<_>, _>>() {
        Ok(recordings) => recordings,
        Err(error) => return Failure::config(error).report(&mut remarks),
    };
    for recording in &recordings {
        if let Some(defect) = &recording.defect {
            writeln!(remarks, "warning: {}: {defect}", recording.name)?;
        }
    }
    let comparison = match Comparison::of(&recordings, arguments.tolerance) {
        Ok(comparison) => comparison,
        Err(failure) => return failure.report(&mut remarks),
    };
    if let [first, others @ ..] = &comparison.clients[..]
        && let Some(other) = others.iter().find(|it| !it.shares_a_server_with(first))
    {
        let (one, other) = (&first.file, &other.file);
        let doubt = "compare recordings of one deployment, by the names that its members have";
        writeln!(remarks, "warning: {one} and {other} have no server in common; {doubt}")?;
    }
    if arguments.json {
        writeln!(output, "{}", json_line(&json::of(&comparison)))?;
    } else {
        text::write(&comparison, &mut output)?;
    }
    output.flush()?;
    Ok(if comparison.agreed() { Exit::SUCCESS } else { Exit::DISAGREED })
}

/// The disagreements between clients.
#[derive(Debug)]
struct Comparison {
    clients: Vec<Client>,
    /// The clock of each client relative to the first client's.
    clocks: Vec<Clock>,
    /// The period that all recordings cover, in nanoseconds since 1970 on the first client's clock.
    from: u64,
    to: u64,
    tolerance: Duration,
    disagreements: Vec<(Subject, Vec<Period>)>,
}

impl Comparison {
    fn of(recordings: &[Recording], tolerance: Duration) -> Result<Self, Failure> {
        let mut clients = Vec::new();
        for recording in recordings {
            let client = Client::of(recording, &clients).map_err(Failure::config)?;
            clients.push(client);
        }
        let Some(reference) = recordings.first() else {
            return Err(Failure::config("there is no recording"));
        };
        let mut clocks = Vec::new();
        for (client, recording) in clients.iter_mut().zip(recordings) {
            let clock = Clock::beside(reference, recording);
            client.shift(clock.correction());
            clocks.push(clock);
        }
        let from = clients.iter().map(|client| client.from).max().unwrap_or(0);
        let to = clients.iter().map(|client| client.to).min().unwrap_or(0);
        if from >= to {
            return Err(Failure::config(text::no_overlap(&clients)));
        }
        let subjects = views::subjects(&clients).into_iter();
        let found = subjects.map(|subject| {
            let periods = periods(&clients, &subject, from, to);
            (subject, periods)
        });
        Ok(Self {
            disagreements: found.filter(|(_, periods)| !periods.is_empty()).collect(),
            clients,
            clocks,
            from,
            to,
            tolerance,
        })
    }

    /// Returns the client that the majority contradicted for the longest time, if there is one.
    fn outlier(&self) -> Option<(&Client, Duration)> {
        let mut times = vec![0; self.clients.len()];
        for period in self.disagreements.iter().flat_map(|(_, periods)| periods) {
            for (time, alone) in times.iter_mut().zip(period.contradicted()) {
                *time += alone;
            }
        }
        let longest = times.iter().copied().max().filter(|longest| *longest > 0)?;
        let mut outliers = self.clients.iter().zip(&times).filter(|(_, time)| **time == longest);
        let (client, _) = outliers.next()?;
        outliers.next().is_none().then(|| (client, Duration::from_nanos(longest)))
    }

    /// Returns whether the period is longer than the tolerance.
    fn exceeds(&self, period: &Period) -> bool {
        period.length() > self.tolerance
    }

    /// Returns whether no disagreement was longer than the tolerance.
    fn agreed(&self) -> bool {
        let mut periods = self.disagreements.iter().flat_map(|(_, periods)| periods);
        periods.all(|period| !self.exceeds(period))
    }
}
