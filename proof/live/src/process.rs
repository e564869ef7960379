//! Child processes that never outlive this process.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};

use crate::wait::poll;

/// A script that reads process ids from standard input and kills the process with the last id when
/// the input ends. The input ends when the process that writes it ends, however that happens. An
/// empty line means that there is no process to kill.
///
/// Signals from the terminal reach all processes of the job, so the script must survive them.
const GUARD: &str = r#"
trap '' HUP INT TERM
while read -r pid; do running=$pid; done
[ -z "$running" ] || kill -s KILL "$running"
rm -rf -- "$1" || rm -rf -- "$1"
"#;

/// A child process, its data directory, and a guard that kills the child and removes the directory
/// if this process dies first.
#[derive(Debug)]
pub(crate) struct Process {
    child: Option<Child>,
    paused: bool,
    guard: Child,
    guard_input: Option<ChildStdin>,
}

impl Process {
    /// Starts only the guard.
    pub(crate) fn guarded(data: &Path) -> io::Result<Self> {
        let mut guard = Command::new("sh");
        guard.args(["-c", GUARD, "sh"]).arg(data).stdin(Stdio::piped());
        let mut guard = detached(&mut guard).spawn()?;
        let guard_input = guard.stdin.take();
        Ok(Self { child: None, paused: false, guard, guard_input })
    }

    /// Starts the child. The previous child must be dead.
    pub(crate) fn spawn(&mut self, command: &mut Command) -> io::Result<()> {
        let child = detached(command.stdin(Stdio::null())).spawn()?;
        let sent = self.send_to_guard(&child.id().to_string());
        self.child = Some(child);
        self.paused = false;
        sent
    }

    /// Returns the id of the child.
    ///
    /// # Errors
    /// If the child is not running.
    pub(crate) fn id(&self) -> io::Result<u32> {
        let not_running = || io::Error::other("the process is not running");
        self.child.as_ref().map(Child::id).ok_or_else(not_running)
    }

    /// Returns whether the child runs and is not paused.
    pub(crate) fn is_responsive(&mut self) -> bool {
        !self.paused
            && self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Returns the exit status of the child, if it exited on its own.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        self.forget();
        Some(status)
    }

    /// Sends a signal to the child. The signal is named without the prefix `SIG`. After `STOP`,
    /// waits until all threads of the child have stopped.
    ///
    /// # Errors
    /// If the child is not running, or the signal cannot be sent.
    pub(crate) fn signal(&mut self, name: &str) -> io::Result<()> {
        let pid = self.id()?.to_string();
        // `kill` is called through a shell: it is built into every shell, but not every system has
        // it as a program.
        let mut kill = Command::new("sh");
        kill.args(["-c", "kill -s \"$1\" \"$2\"", "sh", name, &pid]).stdin(Stdio::null());
        if !kill.status()?.success() {
            return Err(io::Error::other("kill failed"));
        }
        match name {
            "STOP" => {
                self.paused = true;
                wait_until_stopped(&pid)?;
            }
            "CONT" => self.paused = false,
            _ => {}
        }
        Ok(())
    }

    /// Kills the child and waits for its end.
    pub(crate) fn kill(&mut self) -> io::Result<()> {
        let Some(child) = self.child.as_mut() else {
            return Ok(());
        };
        child.kill()?;
        child.wait()?;
        self.forget();
        Ok(())
    }

    fn forget(&mut self) {
        self.child = None;
        self.paused = false;
        // An error means that the guard has died.
        let _ = self.send_to_guard("");
    }

    fn send_to_guard(&mut self, pid: &str) -> io::Result<()> {
        match &mut self.guard_input {
            Some(input) => writeln!(input, "{pid}"),
            None => Ok(()),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A failure cannot be handled here; the guard kills the child again.
        let _ = self.kill();
        self.guard_input = None;
        let _ = self.guard.wait();
    }
}

/// Puts a child into a process group of its own, so that the signals of the terminal do not reach
/// it.
fn detached(command: &mut Command) -> &mut Command {
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(command, 0);
    command
}

/// Waits until no thread of the process runs, because a signal takes effect some time after it was
/// sent. Does nothing on systems without `/proc`.
fn wait_until_stopped(pid: &str) -> io::Result<()> {
    let tasks = Path::new("/proc").join(pid).join("task");
    let is_stopped = || {
        let threads = fs::read_dir(&tasks).into_iter().flatten().flatten();
        // A thread that has ended has no `stat` file. In the file, the state follows the thread's
        // name, which is in parentheses.
        let mut states = threads.filter_map(|own| fs::read_to_string(own.path().join("stat")).ok());
        Ok(states.all(|stat| stat.contains(") T ")).then_some(()))
    };
    poll("a stopped process", is_stopped).map_err(io::Error::other)
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::process::Command;

    use super::Process;
    use crate::wait::poll;
    use crate::workdir::work_dir;

    fn sleeper() -> Command {
        let mut sleeper = Command::new("sleep");
        sleeper.arg("1000");
        sleeper
    }

    fn runs(pid: u32) -> bool {
        Command::new("sh").args(["-c", &format!("kill -0 {pid} 2>&-")]).status().unwrap().success()
    }

    #[test]
    fn dropping_a_process_kills_it_and_removes_its_data() {
        let dir = work_dir("process").unwrap();
        let data = dir.path().join("data");
        std::fs::create_dir(&data).unwrap();
        let mut process = Process::guarded(&data).unwrap();
        process.spawn(&mut sleeper()).unwrap();
        let pid = process.child.as_ref().unwrap().id();
        assert!(process.is_responsive() && runs(pid));
        drop(process);
        assert!(!runs(pid) && !data.exists());
    }

    #[test]
    fn closing_the_guards_input_kills_the_process() {
        let dir = work_dir("process").unwrap();
        let mut process = Process::guarded(&dir.path().join("data")).unwrap();
        process.spawn(&mut sleeper()).unwrap();
        process.signal("STOP").unwrap();
        assert!(!process.is_responsive());
        // The operating system closes this pipe when a test process is killed.
        process.guard_input = None;
        let ended = poll("the guard to kill", || Ok(process.ended())).unwrap();
        assert!(!ended.success());
    }

    #[test]
    fn an_exited_process_is_detected() {
        let dir = work_dir("process").unwrap();
        let mut process = Process::guarded(&dir.path().join("data")).unwrap();
        process.spawn(Command::new("sh").args(["-c", "exit 48"])).unwrap();
        let ended = poll("the exit", || Ok(process.ended())).unwrap();
        assert_eq!(ended.code(), Some(48));
        assert!(process.signal("TERM").is_err());
        process.kill().unwrap();
    }
}
