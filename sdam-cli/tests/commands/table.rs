//! The table of subcommands, with the data that the tests need about each of them.

/// The way in which an example's command ends.
#[derive(Clone, Copy)]
pub(crate) enum End {
    /// The command ends with this exit code.
    Code(i32),
    /// The command prints a line that contains this text. Then the test sends Ctrl-C, and the
    /// command ends with 0.
    After(&'static str),
}

/// The kind of output that a command line has.
#[derive(Clone, Copy)]
pub(crate) enum Output {
    /// The output exceeds 64 KiB, the capacity of a pipe.
    Long,
    /// The output is always short.
    Short,
    /// The program prints a line, and continues until it is interrupted.
    Endless,
}

/// The moment at which a program is interrupted.
#[derive(Clone, Copy)]
pub(crate) enum Moment {
    /// The program has printed a line.
    Printed,
    /// The program is connected to a server that does not reply.
    Connected,
    /// The program has read a lot of input, and is waiting for more.
    Reading,
}

/// The purpose of a path on the command line.
#[derive(Clone, Copy)]
pub(crate) enum Use {
    Input,
    Output,
    /// A folder for outputs.
    Folder,
}

/// A subcommand.
///
/// In arguments, `URI` is replaced by the connection string of a simulated set of three members,
/// `SILENT` by the connection string of a server that does not reply, and `FILE` by the tested
/// path. The folder in which the program runs contains [`FILES`](super::program::FILES).
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// The ways in which the commands of the example end, in order.
    pub(crate) example: &'static [End],
    pub(crate) output: Output,
    /// Arguments with which the subcommand prints the kind of output in `output`, and the file for
    /// standard input, or `-` if it needs no input.
    pub(crate) printing: (&'static str, &'static str),
    /// Command lines to interrupt: the arguments, and the moment of the signal.
    pub(crate) interrupted: &'static [(&'static str, Moment)],
    /// The arguments that are paths. Each has its id, a command line that contains it, and its
    /// purpose.
    pub(crate) paths: &'static [(&'static str, &'static str, Use)],
    /// Other invalid command lines, each with two strings that the error message must contain: the
    /// input and the remedy.
    pub(crate) refused: &'static [(&'static str, [&'static str; 2])],
}

/// The path argument shared by all subcommands that connect to a deployment.
const URI_FILE: (&str, &str, Use) = ("uri_file", "--uri-file FILE", Use::Input);

const PASSWORD_FILE: (&str, &str, Use) =
    ("password_file", "--password-file FILE mongodb://user@127.0.0.1:1", Use::Input);

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "watch",
        example: &[End::Code(0)],
        output: Output::Long,
        printing: ("--json HOSTS", "-"),
        interrupted: &[
            ("URI", Moment::Printed),
            ("--json URI", Moment::Printed),
            ("--record new.jsonl URI", Moment::Printed),
            ("--once SILENT", Moment::Connected),
        ],
        paths: &[URI_FILE, PASSWORD_FILE, ("record", "--once --record FILE URI", Use::Output)],
        refused: &[
            ("--timeout 5", ["--once", "--timeout"]),
            ("--record few.jsonl URI", ["few.jsonl", "name a new one"]),
            ("--once URI URI", ["unexpected", "Usage: sdam watch [OPTIONS] [URI]"]),
        ],
    },
    Case {
        name: "doctor",
        example: &[End::Code(0)],
        output: Output::Long,
        printing: ("--verbose HOSTS", "-"),
        interrupted: &[("--timeout 60 SILENT", Moment::Connected)],
        paths: &[URI_FILE, PASSWORD_FILE],
        refused: &[("", ["connection string", "SDAM_URI"])],
    },
    Case {
        name: "explain",
        example: &[End::Code(0)],
        output: Output::Short,
        printing: ("URI", "-"),
        interrupted: &[("SILENT", Moment::Connected)],
        paths: &[URI_FILE, PASSWORD_FILE],
        refused: &[
            ("--write --read nearest URI", ["--write", "--read"]),
            ("--read primary --tags dc:ny URI", ["mode primary", "choose"]),
            ("--max-staleness 5 URI", ["maxStalenessSeconds", "choose"]),
        ],
    },
    Case {
        name: "export",
        example: &[End::After("http://127.0.0.1:")],
        output: Output::Endless,
        printing: ("--listen localhost:0 URI", "-"),
        interrupted: &[("--listen 127.0.0.1:0 URI", Moment::Printed)],
        paths: &[URI_FILE, PASSWORD_FILE, ("targets", "--targets FILE", Use::Input)],
        refused: &[
            ("--targets empty", ["--targets empty", "orders = "]),
            ("--targets bad.toml", ["--targets bad.toml: line 2", "orders = "]),
            ("--targets wrong.toml", ["wrong.toml: line 1: orders", "write mongodb://localhost:1"]),
            ("--targets empty URI", ["--targets", "cannot be used with"]),
        ],
    },
    Case {
        name: "serve",
        example: &[End::After("mongodb://127.0.0.1:"), End::Code(0)],
        output: Output::Long,
        printing: ("", "commands"),
        interrupted: &[("", Moment::Printed)],
        paths: &[("scenario", "--scenario FILE", Use::Input)],
        refused: &[
            ("--sharded 1 --standalone", ["--sharded", "cannot be used with"]),
            ("--scenario scenario", ["scenario:2: `nonsense`", "the verbs are"]),
        ],
    },
    Case {
        name: "report",
        example: &[End::Code(0), End::Code(0)],
        output: Output::Long,
        printing: ("many.jsonl -o -", "-"),
        interrupted: &[("-", Moment::Reading)],
        paths: &[("recording", "FILE", Use::Input), ("output", "many.jsonl -o FILE", Use::Output)],
        refused: &[
            ("", ["<RECORDING>", "--help"]),
            ("many.jsonl -o bad.toml", ["bad.toml", "choose another file"]),
        ],
    },
    Case {
        name: "completions",
        example: &[End::Code(0), End::Code(0)],
        output: Output::Short,
        printing: ("zsh", "-"),
        interrupted: &[],
        paths: &[],
        refused: &[("", ["<SHELL>", "--help"])],
    },
    Case {
        name: "man",
        example: &[End::Code(0)],
        output: Output::Short,
        printing: ("watch", "-"),
        interrupted: &[],
        paths: &[("dir", "--dir FILE", Use::Folder)],
        refused: &[("watch --dir man1", ["[COMMAND]", "cannot be used with"])],
    },
];
