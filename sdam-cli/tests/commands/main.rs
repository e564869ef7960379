//! Tests every subcommand from the user's point of view: the example in its help, a reader that
//! closes the pipe, signals, DNS look-ups that get no answer, and wrong arguments. The subcommands
//! and options are those that the program defines.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod conventions;
mod demo;
mod program;
mod refusals;
mod streams;
mod supervisor;
mod table;

use std::{
    any::TypeId,
    fs::{self, File},
    net::{TcpListener, UdpSocket},
    path::PathBuf,
    process::Stdio,
    time::Instant,
};

use clap::{Arg, Command};
use rustix::process::Signal;

use self::{
    program::{Room, Running, TIMEOUT, arguments, room, seed},
    refusals::is_helpful,
    table::{CASES, Case, End, Moment, Output},
};

/// The capacity of a pipe, in bytes.
const PIPE: usize = 64 << 10;

/// A connection string whose records are looked up.
const URI: &str = "mongodb+srv://cluster.sdam.example";

/// Returns the definition of a subcommand.
fn definition(name: &str) -> Command {
    let mut program = sdam_cli::cli::command();
    program.build();
    program.find_subcommand(name).unwrap().clone()
}

/// Runs `check` for each subcommand, on separate threads at the same time.
fn each(check: impl Fn(&Case) + Sync) {
    let check = &check;
    std::thread::scope(|scope| {
        for case in CASES {
            scope.spawn(move || check(case));
        }
    });
}

#[test]
fn the_table_has_every_subcommand_and_every_path() {
    let program = sdam_cli::cli::command();
    let names: Vec<_> = program.get_subcommands().map(Command::get_name).collect();
    let known: Vec<_> = CASES.iter().map(|case| case.name).collect();
    assert_eq!(names, known);
    for case in CASES {
        let definition = definition(case.name);
        let is_path =
            |argument: &&Arg| argument.get_value_parser().type_id() == TypeId::of::<PathBuf>();
        let paths = definition.get_arguments().filter(is_path);
        let paths: Vec<_> = paths.map(|argument| argument.get_id().as_str()).collect();
        let known: Vec<_> = case.paths.iter().map(|(id, ..)| *id).collect();
        assert_eq!(paths, known, "{}", case.name);
    }
}

/// Returns the commands in the example at the end of a help text. Each command includes its
/// continuation lines.
fn example(help: &str) -> Vec<String> {
    let (_, end) = help.rsplit_once("\nExample").unwrap();
    let lines: Vec<_> = end.lines().filter(|line| line.starts_with("  ")).collect();
    assert!(lines.iter().all(|line| line.len() <= 80), "{lines:?}");
    let mut commands = Vec::<String>::new();
    for line in lines.iter().filter_map(|line| line.strip_prefix("  ")) {
        match commands.last_mut() {
            Some(last) if last.ends_with('\\') => last.extend(["\n", line]),
            _ => commands.push(line.to_owned()),
        }
    }
    commands
}

/// Runs a command of an example in the shell. Interrupts the command if it does not end by itself.
fn run_example(room: &Room, command: &str, end: End) {
    // Use another deployment and free ports.
    let script = command.replace("127.0.0.1:27017", seed());
    let script = script.replace("127.0.0.1:9216", "127.0.0.1:0");
    let script = script.replace(" --port 27017", "");
    // A machine under load may need longer for a step than the default limit.
    let script = script.replace("sdam doctor ", "sdam doctor --timeout 10 ");
    // The shell also receives the signal. The trap lets the shell survive, so that it returns the
    // exit code of the program.
    let script = format!("trap : INT\n{script}");
    let mut running = Running::start(room.command("sh").args(["-c", &script]));
    let code = match end {
        End::Code(code) => code,
        End::After(text) => {
            running.wait_for(text);
            running.signal(Signal::INT);
            0
        }
    };
    let ended = running.end();
    assert_eq!(ended.code, code, "{script}: {ended:?}");
}

#[test]
fn the_example_in_each_help_works_as_printed() {
    each(|case| {
        let room = Room::new();
        let help = room.run(&[case.name, "--help"]);
        assert_eq!((help.code, &*help.remarks), (0, ""));
        assert_eq!(room.run(&["help", case.name]).output, help.output);
        assert!(help.output.contains("\nExit codes"), "{}", help.output);
        let commands = example(&help.output);
        assert_eq!(commands.len(), case.example.len(), "{commands:?}");
        for (command, end) in commands.iter().zip(case.example) {
            run_example(&room, command, *end);
        }
        room.is_clean();
    });
}

#[test]
fn the_examples_of_the_program_work_as_printed() {
    let room = Room::new();
    let help = room.run(&["--help"]);
    let commands = example(&help.output);
    let ends = [End::Code(0), End::After("RSPrimary"), End::Code(0)];
    assert_eq!(commands.len(), ends.len(), "{commands:?}");
    for (command, end) in commands.iter().zip(ends) {
        run_example(&room, command, end);
    }
    // The help of the program shows the command that starts a deployment for the examples of all
    // subcommands.
    assert!(help.output.contains("`sdam serve --port 27017`"));
    let short = room.run(&["-h"]);
    assert_eq!((short.code, &*short.remarks), (0, ""));
}

#[test]
fn the_commands_of_the_guide_work_as_printed() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guide/src/incidents.md");
    let page = fs::read_to_string(page).unwrap();
    let blocks = page.split("```sh\n").skip(1);
    let lines = blocks.flat_map(|block| block.lines().take_while(|line| *line != "```"));
    let commands: Vec<_> = lines.filter(|line| line.starts_with("sdam ")).collect();
    let ends = [
        ("doctor", End::Code(0)),
        ("explain", End::Code(0)),
        ("watch", End::After("RSPrimary")),
        ("report", End::Code(0)),
        ("export", End::After("http://127.0.0.1:")),
    ];
    assert_eq!(commands.len(), ends.len(), "{commands:?}");
    let room = room();
    for (command, (name, end)) in commands.iter().zip(ends) {
        assert!(command.starts_with(&format!("sdam {name} ")), "{command}");
        run_example(&room, command, end);
    }
    room.is_clean();
}

/// Returns the command that prints the output described by `case`.
fn printing(case: &Case, room: &Room) -> std::process::Command {
    let (text, input) = case.printing;
    let mut command = room.sdam(&arguments(case.name, text, ""));
    if input != "-" {
        command.stdin(File::open(room.path().join(input)).unwrap());
    }
    command
}

#[test]
fn a_reader_that_leaves_after_a_line_ends_the_program_with_0() {
    each(|case| {
        let room = room();
        let mut running = Running::start(&mut printing(case, &room));
        running.wait_for("");
        running.close_output();
        if let Output::Endless = case.output {
            running.signal(Signal::TERM);
        }
        let ended = running.end();
        assert_eq!(ended.code, 0, "{}: {ended:?}", case.name);
        let has_errors = ended.remarks.lines().any(|line| line.starts_with("error"));
        assert!(!has_errors, "{}: {ended:?}", case.name);
        room.is_clean();
    });
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    each(|case| {
        let room = room();
        if let Output::Long = case.output {
            let mut running = Running::start(&mut printing(case, &room));
            let read = running.read(PIPE + 1);
            running.close_output();
            running.end();
            assert!(read > PIPE, "{}: {read}", case.name);
        }
        let full = File::options().write(true).open("/dev/full").unwrap();
        let ended = Running::start_to(&mut printing(case, &room), full).end();
        assert_eq!(ended.code, 4, "{}: {ended:?}", case.name);
        is_helpful(&ended, "standard output: ");

        // If standard output is closed, Rust opens /dev/null instead, so writing succeeds.
        if let Output::Short = case.output {
            let (text, _) = case.printing;
            let words = arguments(case.name, text, "");
            let mut shell = room.command("sh");
            shell.args(["-c", "exec sdam \"$@\" >&-", "sh"]).args(words);
            let ended = Running::start(&mut shell).end();
            assert_eq!((ended.code, &*ended.text()), (0, ""), "{}", case.name);
        }
    });
}

/// Sends a signal to a program at `moment`, and checks how the program ends.
fn interrupt(case: &Case, text: &str, moment: Moment, (signal, code): (Signal, i32)) {
    let room = room();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("mongodb://{}", silent.local_addr().unwrap());
    let mut command = room.interruptible(&arguments(case.name, text, &uri));
    if let Moment::Reading = moment {
        command.stdin(Stdio::piped());
    }
    let mut running = Running::start(&mut command);
    let mut connection = None;
    match moment {
        Moment::Printed => running.wait_for(""),
        Moment::Connected => connection = Some(silent.accept().unwrap()),
        // Write more than the pipe can hold, so that the program has read some of it when this call
        // returns.
        Moment::Reading => running.write(&vec![b'\n'; 4 * PIPE]),
    }
    running.signal(signal);
    let ended = running.end();
    drop(connection);
    assert_eq!(ended.code, code, "{} {text}, {signal:?}: {ended:?}", case.name);
    room.is_clean();
}

#[test]
fn signals_end_programs_with_the_exit_code_of_the_help() {
    each(|case| {
        for (text, moment) in case.interrupted {
            // Programs that run until they are stopped end with 0. All others are killed by the
            // signal.
            let goes_on = matches!(case.name, "watch" | "export" | "serve");
            let goes_on = goes_on && !text.contains("--once");
            for (signal, killed) in [(Signal::INT, 130), (Signal::TERM, 143)] {
                interrupt(case, text, *moment, (signal, if goes_on { 0 } else { killed }));
            }
        }
    });
}

#[test]
fn a_silent_dns_server_delays_no_more_than_the_time_limit() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let dns = silent.local_addr().unwrap().to_string();
    let room = Room::new();
    for words in ["watch --once", "explain", "doctor"] {
        let begun = Instant::now();
        let limits = ["--timeout", "1", "--dns", &dns, URI];
        let words: Vec<_> = words.split(' ').chain(limits).collect();
        let ended = room.run(&words);
        // Without --timeout, a look-up takes ten seconds.
        assert!(begun.elapsed().as_secs() < 8, "{words:?}: {ended:?}");
        let is_doctor = words.contains(&"doctor");
        assert_eq!(ended.code, if is_doctor { 2 } else { 4 }, "{ended:?}");
        assert!(is_doctor || ended.remarks.contains("raise --timeout"), "{ended:?}");
    }
}

#[test]
fn a_look_up_is_interrupted_like_what_follows_it() {
    let room = Room::new();
    for (first, code) in [("--plain", 0), ("--once", 130)] {
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        silent.set_read_timeout(Some(TIMEOUT)).unwrap();
        let dns = silent.local_addr().unwrap().to_string();
        let running =
            Running::start(&mut room.interruptible(&["watch", first, "--dns", &dns, URI]));
        silent.recv_from(&mut [0; 512]).unwrap();
        running.signal(Signal::INT);
        let ended = running.end();
        assert_eq!(ended.code, code, "{ended:?}");
    }
}
