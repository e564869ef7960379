//! Renders a recording as one page of HTML.

mod events;
mod overview;
mod page;
#[cfg(test)]
mod tests;
mod timeline;
mod verdict;

use std::{
    fs::File,
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use clap::Args;

use self::page::{MARK, Page};
use crate::{
    exit::{Exit, Failure},
    files::cannot_write,
    recording::{Recording, private},
};

/// The text that the help shows after the options.
const AFTER: &str = "\
The page needs no network and no scripts: mail it, or attach it to the record of the incident. It contains host \
names and error texts, but no credentials. Only you can read the file until you change that.

Exit codes: 0 done, 3 the command line is wrong or RECORDING is no recording, 4 another failure.

Example, with the recording of a simulated failover:
  sdam watch --demo --plain --record incident.jsonl
  sdam report incident.jsonl -o failover.html";

/// Shows a recording as one page of HTML.
///
/// The page has the servers' states over time, the failovers, and the events.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(after_help = AFTER)]
#[non_exhaustive]
pub struct Arguments {
    /// A recording by `sdam watch --record FILE`; `-` is standard input.
    pub recording: PathBuf,
    /// Write the page to FILE; to standard output if it is `-` [default: RECORDING with the
    /// extension html].
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Overwrite FILE even if it is not a report.
    #[arg(long)]
    pub force: bool,
}

/// Writes the page about the recording that `arguments` name, and prints the page's headline to
/// `remarks`.
///
/// # Errors
///
/// If writing to a stream fails. Other errors are printed and set the exit code.
pub fn run(
    arguments: &Arguments,
    mut output: impl Write,
    mut remarks: impl Write,
) -> io::Result<Exit> {
    let recording = match Recording::open(&arguments.recording) {
        Ok(recording) => recording,
        Err(error) => return Failure::config(error).report(&mut remarks),
    };
    if let Some(defect) = &recording.defect {
        writeln!(remarks, "warning: {}: {defect}", recording.name)?;
    }
    let page = Page::of(&recording);
    let Some(path) = arguments.destination() else {
        output.write_all(page.html.as_bytes())?;
        output.flush()?;
        return Ok(Exit::SUCCESS);
    };
    if let Err(failure) = save(&page, &path, arguments.force) {
        return failure.report(&mut remarks);
    }
    writeln!(remarks, "{}: {}", path.display(), page.headline)?;
    Ok(Exit::SUCCESS)
}

impl Arguments {
    /// Returns the output file, or `None` for standard output.
    fn destination(&self) -> Option<PathBuf> {
        let is_stream = |path: &Path| path.as_os_str() == "-";
        match &self.output {
            Some(path) => (!is_stream(path)).then(|| path.clone()),
            None if is_stream(&self.recording) => None,
            None => Some(self.recording.with_extension("html")),
        }
    }
}

/// Writes the page to a file, unless the file already contains something other than a report.
fn save(page: &Page, path: &Path, force: bool) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::other(cannot_write(path.display(), &error));
    if !force && !is_free(path).map_err(failed)? {
        let path = path.display();
        return Err(Failure::config(format!(
            "{path} exists and is not a report: choose another file, or overwrite it with --force"
        )));
    }
    let mut options = File::options();
    let file = private(options.write(true).create(true).truncate(true)).open(path);
    file.and_then(|mut file| file.write_all(page.html.as_bytes())).map_err(failed)
}

/// Returns whether `path` is missing, empty, a device, or an older report.
fn is_free(path: &Path) -> io::Result<bool> {
    let file = match File::open(path) {
        Ok(file) if file.metadata()?.is_file() => file,
        Ok(_) => return Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    };
    let mut start = Vec::new();
    file.take(MARK.len() as u64).read_to_end(&mut start)?;
    Ok(start.is_empty() || start == MARK.as_bytes())
}
