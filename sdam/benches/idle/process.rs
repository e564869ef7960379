//! Starts processes for servers and for measured clients, and reads the clients' figures from
//! `/proc`.

use std::{
    env, fs,
    io::{BufRead, BufReader, Read},
    process::{Child, Command, Stdio},
};

use sdam_sim::Blueprint;

use crate::clients::Figures;

/// A replica set in a separate process, which exits together with this process.
pub(crate) struct Deployment {
    process: Child,
    uri: String,
}

impl Deployment {
    pub(crate) fn start(members: u16) -> Self {
        let mut process = this_program(&["serve", &members.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut uri = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut uri).unwrap();
        let uri = uri.trim().to_owned();
        Self { process, uri }
    }

    /// Measures the clients that monitor this deployment, which has `members` members, for
    /// `seconds` seconds. `further` is the number of clients besides the first.
    pub(crate) fn measure(
        &self,
        options: &str,
        members: usize,
        further: usize,
        seconds: u64,
    ) -> Figures {
        let uri = format!("{}{options}", self.uri);
        let [members, further, seconds] =
            [members.to_string(), further.to_string(), seconds.to_string()];
        let output = this_program(&["measure", &uri, &members, &further, &seconds])
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        assert!(output.status.success(), "the measuring process failed");
        let printed = String::from_utf8(output.stdout).unwrap();
        let figures: Vec<f64> =
            printed.split_whitespace().map(|own| own.parse().unwrap()).collect();
        figures.try_into().unwrap()
    }
}

impl Drop for Deployment {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        // The process exits on its own; killing it is only a safeguard.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn this_program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(arguments);
    command
}

/// Runs the servers until standard input ends.
pub(crate) fn serve(members: u16) {
    let set = Blueprint::replica_set(members).serve().unwrap();
    println!("{}", set.uri());
    let _ = std::io::stdin().read(&mut [0]);
}

/// Counts the sockets of this process.
pub(crate) fn sockets() -> usize {
    let is_socket = |entry: &fs::DirEntry| {
        fs::read_link(entry.path())
            .is_ok_and(|target| target.to_string_lossy().starts_with("socket:"))
    };
    fs::read_dir("/proc/self/fd").unwrap().filter_map(Result::ok).filter(is_socket).count()
}

/// Returns the amount of memory that this process uses, in KiB.
pub(crate) fn memory() -> f64 {
    status_of("/proc/self/status", "RssAnon:")
}

/// Counts how often the threads of this process went to sleep.
pub(crate) fn switches() -> f64 {
    fs::read_dir("/proc/self/task")
        .unwrap()
        .map(|task| task.unwrap().path().join("status"))
        .map(|path| status_of(&path.to_string_lossy(), "voluntary_ctxt_switches:"))
        .sum()
}

fn status_of(path: &str, key: &str) -> f64 {
    let status = fs::read_to_string(path).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let number = line.unwrap().split_whitespace().next().unwrap();
    number.parse().unwrap()
}

/// Returns the processor time of all threads of this process, in microseconds.
pub(crate) fn cpu() -> f64 {
    // The unit is nanoseconds; /proc/self/stat counts only hundredths of a second.
    fs::read_dir("/proc/self/task")
        .unwrap()
        .map(|task| fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap())
        .map(|times| -> f64 { times.split_whitespace().next().unwrap().parse().unwrap() })
        .sum::<f64>()
        / 1e3
}
