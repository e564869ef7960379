//! Tests the full screen of `sdam watch` in a real terminal.
#![expect(clippy::unwrap_used, reason = "a failed set-up fails the test")]

use std::{
    fs,
    io::Write,
    net::TcpListener,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use sdam_cli::recording::Recording;
use sdam_live::{Terminal, or_skip};
use sdam_sim::{Blueprint, Served};

/// Opens a terminal with its default modes, or skips the test.
fn open(width: u16, height: u16) -> Option<Screen> {
    let terminal = or_skip(Terminal::open(width, height)).unwrap()?;
    let screen = Screen { modes: modes(&terminal), terminal };
    Some(screen)
}

/// A terminal, and the modes that it had before the program started.
struct Screen {
    terminal: Terminal,
    modes: String,
}

/// Returns the modes of a terminal, without its size.
fn modes(terminal: &Terminal) -> String {
    let tty = terminal.state("#{pane_tty}").unwrap();
    let stty = Command::new("stty").args(["-a", "-F", &tty]).output().unwrap();
    let text = String::from_utf8(stty.stdout).unwrap();
    text.split_once('\n').unwrap().1.to_owned()
}

impl Screen {
    /// Starts the program with the given `arguments`.
    fn start(&self, arguments: &str) {
        let program = env!("CARGO_BIN_EXE_sdam");
        self.terminal.line(&format!("{program} {arguments}; echo \"exit $?\"")).unwrap();
    }

    /// Starts the program so that it watches `set`, and waits until the primary is shown.
    fn watch(&self, set: &Served) -> String {
        self.start(&format!("watch '{}'", set.uri()));
        self.wait_for("OK  writable for")
    }

    fn wait_for(&self, text: &str) -> String {
        self.terminal.wait_for(text).unwrap()
    }

    fn key(&self, name: &str) {
        self.terminal.key(name).unwrap();
    }

    /// Checks that the program ended with the exit code `code`, and that it restored the terminal.
    fn is_restored(&self, code: u8) {
        let text = self.wait_for(&format!("exit {code}"));
        assert!(!text.contains("events, newest last"), "{text}");
        let state = self.terminal.state("#{alternate_on} #{cursor_flag}").unwrap();
        assert_eq!(state, "0 1", "the main screen, with a cursor");
        assert_eq!(modes(&self.terminal), self.modes);
    }
}

/// Returns the id of the program's process.
fn pid(screen: &Screen) -> String {
    let shell = screen.terminal.state("#{pane_pid}").unwrap();
    let children = fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap();
    children.trim().to_owned()
}

fn signal(name: &str, pid: &str) {
    let kill = Command::new("kill").args(["-s", name, pid]).status().unwrap();
    assert!(kill.success());
}

/// Starts a set of three members on loopback.
fn set() -> Served {
    Blueprint::replica_set(3).serve().unwrap()
}

/// Opens a terminal in which the program watches a set, or skips the test.
fn watching() -> Option<(Screen, Served)> {
    let (screen, set) = (open(80, 24)?, set());
    screen.watch(&set);
    Some((screen, set))
}

#[test]
fn a_failover_is_seen_and_every_key_has_its_effect() {
    let Some(screen) = open(80, 24) else {
        return;
    };
    let set = set();
    let folder = tempfile::tempdir().unwrap();
    screen.terminal.line(&format!("cd {}", folder.path().display())).unwrap();
    screen.start(&format!("watch '{}&heartbeatFrequencyMS=500'", set.uri()));
    screen.wait_for("OK  writable for");
    let old = set.primary().unwrap().unwrap();
    set.kill(old).unwrap();
    let text = screen.wait_for("!! NO PRIMARY");
    assert!(text.contains("cause: "), "{text}");
    screen.wait_for("UNKNOWN");
    let text = screen.wait_for("FAILOVER 1: ");
    assert!(text.contains("s without a primary, :"), "{text}");
    assert!(text.contains("1 of 3 DOWN: :"), "{text}");

    screen.key("?");
    screen.wait_for("any key closes it");
    screen.key("Escape");
    screen.wait_for("events, newest last");
    screen.key("r");
    screen.wait_for("read(primaryPreferred): ");
    screen.key("d");
    screen.wait_for("checks since");
    screen.key("d");
    screen.wait_for("events, newest last");
    screen.key("p");
    screen.wait_for("PAUSED at");
    screen.key("p");
    screen.terminal.wait_until("no pause", |text| !text.contains("PAUSED")).unwrap();
    screen.key("/");
    screen.terminal.line("SECONDARY").unwrap();
    screen.wait_for("filter `SECONDARY`");

    resizes(&screen);
    screen.key("w");
    let text = screen.wait_for("saved sdam-");
    let name = text.split("saved ").nth(1).unwrap().split(' ').next().unwrap();
    let saved = Recording::open(&folder.path().join(name)).unwrap();
    assert_eq!(saved.defect, None);
    assert!(saved.events.len() > 20, "{}", saved.events.len());
    screen.key("q");
    screen.is_restored(0);
}

/// Resizes the terminal several times, and leaves it with 120 columns.
fn resizes(screen: &Screen) {
    screen.terminal.resize(40, 12).unwrap();
    screen
        .terminal
        .wait_until("a narrow title", |text| text.starts_with("rs0 WithPrimary"))
        .unwrap();
    screen.terminal.resize(30, 1).unwrap();
    screen.terminal.wait_until("one line", |text| text.starts_with("rs0 :")).unwrap();
    screen.terminal.resize(120, 40).unwrap();
    screen.wait_for("events, newest last");

    let tty = screen.terminal.state("#{pane_tty}").unwrap();
    for (rows, columns) in [(0, 0), (1, 1), (7, 39), (80, 300), (0, 80), (24, 0), (40, 120)] {
        let size = format!("stty -F {tty} rows {rows} cols {columns}");
        assert!(Command::new("sh").args(["-c", &size]).status().unwrap().success());
    }
    screen.key("C-l");
    screen.wait_for("events, newest last");
}

#[test]
fn the_terminal_is_restored_however_the_program_ends() {
    let Some(screen) = open(80, 24) else {
        return;
    };
    let set = set();
    let check = |code: u8, end: &dyn Fn()| {
        screen.terminal.line("clear").unwrap();
        screen.watch(&set);
        end();
        screen.is_restored(code);
    };
    check(0, &|| screen.key("q"));
    check(0, &|| screen.key("C-c"));
    check(0, &|| signal("INT", &pid(&screen)));
    check(0, &|| signal("TERM", &pid(&screen)));
    check(129, &|| signal("HUP", &pid(&screen)));
    check(131, &|| signal("QUIT", &pid(&screen)));
}

#[test]
fn a_suspended_program_leaves_the_terminal_to_the_shell_and_comes_back() {
    let Some((screen, _set)) = watching() else {
        return;
    };
    let check = |stop: &dyn Fn()| {
        screen.terminal.line("clear").unwrap();
        screen.terminal.line("fg").unwrap();
        screen.wait_for("events, newest last");
        stop();
        screen.wait_for("Stopped");
        assert_eq!(screen.terminal.state("#{alternate_on}").unwrap(), "0");
        assert_eq!(modes(&screen.terminal), screen.modes);
    };
    screen.key("C-z");
    screen.wait_for("Stopped");
    check(&|| screen.key("C-z"));
    check(&|| signal("TSTP", &pid(&screen)));
    screen.terminal.line("fg").unwrap();
    screen.wait_for("events, newest last");
    screen.key("q");
    screen.terminal.wait_for("fg").unwrap();
}

#[test]
fn the_program_ends_with_its_terminal() {
    let Some((screen, _set)) = watching() else {
        return;
    };
    let process = format!("/proc/{}/cmdline", pid(&screen));
    let is_running = || fs::read(&process).is_ok_and(|line| !line.is_empty());
    assert!(is_running());
    drop(screen);
    let end = Instant::now() + Duration::from_secs(30);
    while is_running() {
        assert!(Instant::now() < end, "it runs without a terminal");
        thread::yield_now();
    }
}

#[test]
fn everything_is_drawn_again_at_a_resize_even_if_the_size_is_the_same() {
    let Some((screen, _set)) = watching() else {
        return;
    };
    // Corrupt the screen, as a terminal does if it shrinks and grows again between two frames.
    let tty = screen.terminal.state("#{pane_tty}").unwrap();
    let mut output = fs::OpenOptions::new().write(true).open(tty).unwrap();
    output.write_all(b"\x1b[H\x1b[Kspoilt").unwrap();
    screen.wait_for("spoilt");
    signal("WINCH", &pid(&screen));
    screen.terminal.wait_until("a title", |text| text.starts_with("sdam watch")).unwrap();
    screen.key("q");
    screen.is_restored(0);
}

#[test]
fn keys_have_their_effect_while_a_server_does_not_reply() {
    let Some((screen, set)) = watching() else {
        return;
    };
    set.freeze(set.primary().unwrap().unwrap()).unwrap();
    screen.key("?");
    screen.wait_for("any key closes it");
    screen.key("q");
    screen.is_restored(0);
}

#[test]
fn the_demonstration_says_what_happens_on_the_full_screen() {
    let Some(screen) = open(80, 24) else {
        return;
    };
    screen.start("");
    screen.wait_for("DEMONSTRATION: a simulated replica set");
    screen.wait_for("DEMONSTRATION: asking the primary");
    screen.wait_for("DEMONSTRATION: the end; give a connection string");
    let text = screen.wait_for("FAILOVER 1: ");
    assert!(text.contains("q quit"), "{text}");
    screen.key("q");
    screen.is_restored(0);
}

#[test]
fn programs_without_a_screen_leave_the_terminal_as_it_was() {
    let Some(screen) = open(80, 24) else {
        return;
    };
    let set = set();
    // Use a separate listener for each program. A shared one could still hold connections of a
    // program that has ended.
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [doctor, explain] = listeners.each_ref().map(|own| own.local_addr().unwrap());
    // Wait for the prompt of the shell, because anything typed earlier would become input of the
    // program.
    let has_prompt = || {
        let ends = |text: &str| text.trim_end().ends_with("ready$");
        screen.terminal.wait_until("a prompt", ends).unwrap();
    };
    let check = |arguments: &str, is_running: &dyn Fn(), code: u8| {
        let program = env!("CARGO_BIN_EXE_sdam");
        screen.terminal.line("clear").unwrap();
        let is_clear = |text: &str| text.trim() == "ready$";
        screen.terminal.wait_until("no text", is_clear).unwrap();
        let command = format!("{program} {arguments}");
        screen.terminal.line(&command).unwrap();
        is_running();
        screen.key("C-c");
        has_prompt();
        screen.terminal.line("echo \"exit $?\"").unwrap();
        screen.is_restored(code);
    };
    let shows = |text: &'static str| {
        let screen = &screen;
        move || drop(screen.wait_for(text))
    };
    let connects = |listener: usize| drop(listeners[listener].accept().unwrap());
    let uri = set.uri();
    check(&format!("watch --plain '{uri}'"), &shows("RSPrimary"), 0);
    check(&format!("doctor --timeout 60 'mongodb://{doctor}'"), &|| connects(0), 130);
    check(&format!("explain 'mongodb://{explain}'"), &|| connects(1), 130);
    check(&format!("export --listen localhost:0 '{uri}'"), &shows("http://127"), 0);
    check("serve", &shows("`help` explains"), 0);
}

#[test]
fn with_no_color_and_without_utf_8_there_are_neither_colours_nor_special_characters() {
    let Some(screen) = open(80, 24) else {
        return;
    };
    let set = set();
    screen.terminal.line("export NO_COLOR=1 LC_ALL=C").unwrap();
    let text = screen.watch(&set);
    assert!(text.is_ascii(), "{text}");
    let coloured = screen.terminal.coloured().unwrap();
    assert!(!coloured.contains('\x1b'), "{coloured:?}");
    screen.key("q");
    screen.is_restored(0);
}
