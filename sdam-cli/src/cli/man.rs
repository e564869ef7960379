//! Manual pages in troff: one for the program and one for each subcommand.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use clap::Args;

use crate::{
    exit::{self, Exit, Failure},
    files,
    output::standard_error,
};

/// The text that the help shows after the options.
const AFTER: &str = "\
In a folder `share/man/man1` beside the folder of the program, `man` finds the pages: `man sdam`, \
`man sdam-watch`.

Exit codes: 0 done, 3 the command line is wrong, 4 the pages cannot be written.

Example:
  sdam man --dir ~/.cargo/share/man/man1";

/// Prints a manual page, in troff, or writes all of them into a folder.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(after_help = AFTER)]
pub(super) struct Arguments {
    /// The subcommand that the page describes [default: the program].
    #[arg(conflicts_with = "dir", hide_possible_values = true)]
    command: Option<String>,
    /// Write all pages into the folder DIR, which is created if it is missing.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Prints one page of `program`, or writes all of its pages into a folder.
pub(super) fn run(arguments: &Arguments, program: clap::Command) -> io::Result<Exit> {
    let mut program = program.disable_help_subcommand(true);
    program.build();
    if let Some(folder) = &arguments.dir {
        return match write(folder, &program) {
            Ok(()) => Ok(Exit::SUCCESS),
            Err(failure) => failure.report(&mut standard_error()),
        };
    }
    let command = match &arguments.command {
        None => &program,
        Some(name) => program.find_subcommand(name).unwrap_or(&program),
    };
    Ok(exit::print(&page(command)?))
}

/// Writes the pages of `program` and of its subcommands into `folder`.
fn write(folder: &Path, program: &clap::Command) -> Result<(), Failure> {
    let failed = |error| Failure::other(files::cannot_write(folder.display(), &error));
    fs::create_dir_all(folder).map_err(failed)?;
    for command in [program].into_iter().chain(program.get_subcommands()) {
        let file = folder.join(format!("{}.1", title(command)));
        let failed = |error| Failure::other(files::cannot_write(file.display(), &error));
        page(command).and_then(|page| fs::write(&file, page)).map_err(failed)?;
    }
    Ok(())
}

/// Returns the name of a command's page, such as `sdam-watch`.
fn title(command: &clap::Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

/// Renders the manual page of a command.
fn page(command: &clap::Command) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let page =
        clap_mangen::Man::new(command.clone()).source(concat!("sdam ", env!("CARGO_PKG_VERSION")));
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    if command.has_subcommands() {
        page.render_subcommands_section(&mut text)?;
    }
    let notes = command.get_after_help().map(ToString::to_string);
    notes_section(&mut text, &notes.unwrap_or_default())?;
    Ok(text)
}

/// Renders `notes`, the text after the options in the help, as a section. Lets troff fill
/// paragraphs, but keeps indented lines unchanged.
fn notes_section(page: &mut impl Write, notes: &str) -> io::Result<()> {
    writeln!(page, ".SH NOTES")?;
    let mut is_indented = false;
    for line in notes.lines() {
        if line.starts_with("  ") != is_indented && !line.is_empty() {
            is_indented = !is_indented;
            writeln!(page, "{}", if is_indented { ".RS 2\n.nf" } else { ".fi\n.RE" })?;
        }
        if line.is_empty() {
            writeln!(page, ".PP")?;
        } else {
            let text = line.strip_prefix("  ").unwrap_or(line);
            writeln!(page, "\\&{}", escaped(text))?;
        }
    }
    if is_indented {
        writeln!(page, ".fi\n.RE")?;
    }
    Ok(())
}

/// Escapes characters that troff would interpret or replace.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\e")
        .replace('-', "\\-")
        .replace('\'', "\\(aq")
        .replace('`', "\\(ga")
        .replace('~', "\\(ti")
        .replace('^', "\\(ha")
        .replace('"', "\\(dq")
}
