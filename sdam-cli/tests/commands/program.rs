//! Runs processes of the program in a temporary folder, with the deployments and files that the
//! tested command lines use.

use std::{
    ffi::OsStr,
    fmt::Write as _,
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::process::{CommandExt, ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{
        LazyLock,
        mpsc::{self, Sender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};
use sdam_sim::{Blueprint, Served};
use tempfile::TempDir;

/// The time limit of every process, which is long enough for a machine under load.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// A folder in which processes run. It contains another folder for their temporary files.
pub(crate) struct Room(TempDir);

impl Room {
    pub(crate) fn new() -> Self {
        let room = Self(tempfile::tempdir().unwrap());
        fs::create_dir(room.temporary()).unwrap();
        room
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    fn temporary(&self) -> PathBuf {
        self.path().join("tmp")
    }

    /// Writes a file into the folder.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path().join(name), content).unwrap();
    }

    /// Returns the command that runs another program, with `sdam` on the search path.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let own = Path::new(env!("CARGO_BIN_EXE_sdam")).parent().unwrap();
        let others = std::env::var_os("PATH").unwrap_or_default();
        let paths = [own.to_owned()].into_iter().chain(std::env::split_paths(&others));
        let mut command = Command::new(program);
        command.current_dir(self.path()).stdin(Stdio::null());
        command.env("PATH", std::env::join_paths(paths).unwrap());
        command.env("HOME", self.path()).env("TMPDIR", self.temporary());
        command.env_remove("SDAM_URI");
        command
    }

    /// Returns the command that runs the program with the given `arguments`.
    pub(crate) fn sdam(&self, arguments: &[impl AsRef<OsStr>]) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_sdam"));
        command.args(arguments);
        command
    }

    /// Returns the command that runs the program with the given `arguments`. It also restores the
    /// default handling of SIGINT, because a shell makes its background processes ignore this
    /// signal.
    pub(crate) fn interruptible(&self, arguments: &[impl AsRef<OsStr>]) -> Command {
        let mut command = self.command("env");
        command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_sdam")]);
        command.args(arguments);
        command
    }

    pub(crate) fn run(&self, arguments: &[impl AsRef<OsStr>]) -> Ended {
        Running::start(&mut self.sdam(arguments)).end()
    }

    /// Checks that the processes have removed their temporary files.
    pub(crate) fn is_clean(&self) {
        let left: Vec<_> = fs::read_dir(self.temporary()).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// A running process, together with the processes that it has started.
pub(crate) struct Running {
    child: Child,
    output: Option<BufReader<ChildStdout>>,
    remarks: JoinHandle<String>,
    /// The sender that is dropped when the process has ended, so that the process is not killed at
    /// the time limit.
    watched: Sender<()>,
}

/// The exit code and the output of a process that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The exit code. As in a shell, it is 128 plus the number of the signal if a signal ended the
    /// process.
    pub(crate) code: i32,
    pub(crate) output: String,
    pub(crate) remarks: String,
}

impl Running {
    /// Starts a process, and makes its standard output readable.
    pub(crate) fn start(command: &mut Command) -> Self {
        Self::start_to(command, Stdio::piped())
    }

    /// Starts a process whose standard output goes to `output`.
    pub(crate) fn start_to(command: &mut Command, output: impl Into<Stdio>) -> Self {
        let command = command.stdout(output).stderr(Stdio::piped());
        let command = command.process_group(0);
        let mut child = command.spawn().unwrap();
        let mut stderr = child.stderr.take().unwrap();
        let remarks = thread::spawn(move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).unwrap();
            text
        });
        let group = Pid::from_child(&child);
        let (watched, end) = mpsc::channel();
        thread::spawn(move || {
            if end.recv_timeout(TIMEOUT) == Err(mpsc::RecvTimeoutError::Timeout) {
                // Ignore the error, because killing fails if the process has just ended.
                let _ = kill_process_group(group, Signal::KILL);
            }
        });
        let output = child.stdout.take().map(BufReader::new);
        Self { child, output, remarks, watched }
    }

    /// Writes to the standard input of the process, which must have been started with a pipe.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.child.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    /// Closes the standard input.
    pub(crate) fn close_input(&mut self) {
        self.child.stdin = None;
    }

    /// Reads up to `most` bytes of the output, and returns the number of bytes.
    pub(crate) fn read(&mut self, most: usize) -> usize {
        let output = self.output.as_mut().unwrap();
        let mut bytes = Vec::new();
        output.take(most as u64).read_to_end(&mut bytes).unwrap()
    }

    /// Reads a line of the output. Returns an empty string at the end of the output.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        let output = self.output.as_mut().unwrap();
        output.read_line(&mut line).unwrap();
        line
    }

    /// Reads lines of the output until a line contains `text`.
    pub(crate) fn wait_for(&mut self, text: &str) {
        let mut seen = String::new();
        loop {
            let line = self.line();
            if line.contains(text) && !line.is_empty() {
                return;
            }
            assert!(!line.is_empty(), "no {text:?} in {seen}");
            seen += &line;
        }
    }

    /// Closes the reading end of standard output, as `head` does.
    pub(crate) fn close_output(&mut self) {
        self.output = None;
    }

    /// Sends a signal to the process and to the processes that it has started.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process_group(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until the process ends.
    pub(crate) fn end(mut self) -> Ended {
        let mut output = String::new();
        if let Some(mut rest) = self.output.take() {
            rest.read_to_string(&mut output).unwrap();
        }
        let status = self.child.wait().unwrap();
        let remarks = self.remarks.join().unwrap();
        drop(self.watched);
        assert!(!remarks.contains("panicked"), "{remarks}");
        let code = status.code().or_else(|| status.signal().map(|number| 128 + number));
        Ended { code: code.unwrap(), output, remarks }
    }
}

impl Ended {
    /// Returns standard output, followed by standard error.
    pub(crate) fn text(&self) -> String {
        format!("{}{}", self.output, self.remarks)
    }
}

/// The files that each test folder contains.
pub(crate) static FILES: LazyLock<Vec<(&str, Vec<u8>)>> = LazyLock::new(|| {
    let mut files = vec![("few.jsonl", record(3)), ("many.jsonl", record(160))];
    let texts = [
        ("commands", "help\n".repeat(40)),
        ("empty", String::new()),
        ("bad.toml", "# Shop\nx = 1\n".to_owned()),
        ("wrong.toml", "orders = 'localhost:1'\n".to_owned()),
        ("scenario", "1s kill primary\n2s nonsense\n".to_owned()),
    ];
    files.extend(texts.map(|(name, text)| (name, text.into_bytes())));
    files.push(("garbage", b"\xff\x00\x9f\n".repeat(100)));
    files
});

/// A simulated set of three members that never changes.
static SET: LazyLock<Served> = LazyLock::new(|| Blueprint::replica_set(3).serve().unwrap());

/// Creates a folder with [`FILES`].
pub(crate) fn room() -> Room {
    let room = Room::new();
    for (name, content) in &*FILES {
        room.write(name, content);
    }
    room
}

/// Returns the first member of the simulated set, as `127.0.0.1:PORT`.
pub(crate) fn seed() -> &'static str {
    let hosts = SET.uri().strip_prefix("mongodb://").unwrap();
    hosts.split(',').next().unwrap()
}

/// Splits `text` into arguments at spaces, and replaces placeholders. `given` is the tested value.
pub(crate) fn arguments(name: &str, text: &str, given: &str) -> Vec<String> {
    let hosts = || {
        let hosts = (1..=250).fold(String::new(), |mut hosts, port| {
            // Writing to a string cannot fail.
            let _ = write!(hosts, ",127.0.0.1:{port}");
            hosts
        });
        format!("mongodb://{}", hosts.trim_start_matches(','))
    };
    let word = |word: &str| match word {
        "URI" => format!("mongodb://{}/?replicaSet=rs0", seed()),
        "HOSTS" => hosts(),
        "FILE" | "SILENT" => given.to_owned(),
        word => word.to_owned(),
    };
    let words = [name].into_iter().chain(text.split_whitespace());
    words.map(word).collect()
}

/// Records a client while it discovers a set.
fn record(members: u16) -> Vec<u8> {
    let set = Blueprint::replica_set(members).serve().unwrap();
    let room = Room::new();
    let words = ["watch", "--record", "new.jsonl", set.uri()];
    let mut client = Running::start(&mut room.sdam(&words));
    for _ in 0..members {
        client.wait_for("was Unknown");
    }
    client.signal(Signal::INT);
    assert_eq!(client.end().code, 0);
    fs::read(room.path().join("new.jsonl")).unwrap()
}
