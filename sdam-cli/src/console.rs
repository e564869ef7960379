//! The standard streams of a program.

use std::{
    env,
    io::{self, IsTerminal, Write},
};

use crate::{
    output::{Output, readable_output, standard_error},
    terminal::Palette,
};

/// The outputs of a program.
#[derive(Debug)]
pub struct Console<O, R> {
    /// The requested output.
    pub output: O,
    /// The stream for errors and remarks.
    pub remarks: R,
    /// The colours of the output.
    pub palette: Palette,
}

impl Console<Output, Output> {
    /// Opens standard output and standard error. Output is coloured if it goes to a terminal and
    /// the user has not disabled colours. Writing to either stream does not block the program.
    pub fn standard() -> Self {
        Self { output: Output::stdout(), remarks: Output::stderr(), palette: palette() }
    }
}

/// Opens the standard streams like [`Console::standard`], but for a program that does nothing but
/// write, so writing may block.
pub(crate) fn console() -> Console<impl Write, impl Write> {
    Console { output: readable_output(), remarks: standard_error(), palette: palette() }
}

/// Returns the colours of standard output.
fn palette() -> Palette {
    let (no_color, term) = (env::var_os("NO_COLOR"), env::var_os("TERM"));
    let is_terminal = io::stdout().is_terminal();
    Palette::detect(is_terminal, no_color.as_deref(), term.as_deref())
}
