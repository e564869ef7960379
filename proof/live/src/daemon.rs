//! Servers that each run as one process on a reserved loopback port, in a temporary directory. The
//! processes never outlive this process.

use std::env;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use socket2::{Domain, SockRef, Socket, Type};
use tempfile::TempDir;

use crate::error::{Error, poll};

/// The number of lines of its output that are quoted if a server exits.
const QUOTED_LINES: usize = 12;

/// The process of a server, with its port and its directory. Dropping it kills the process, which
/// ends all connections to or through the server, and removes the directory.
#[derive(Debug)]
pub struct Daemon {
    name: &'static str,
    port: Port,
    // This field is declared before the directory, so that the process is killed before the
    // directory is removed.
    process: Mutex<Process>,
    dir: TempDir,
}

impl Daemon {
    /// Reserves a port and creates the directory; [`Daemon::start`] must follow.
    pub(crate) fn new(name: &'static str) -> Result<Self, Error> {
        let dir = work_dir(name).map_err(Error::io("creating a directory"))?;
        let process = Process::guarded(dir.path()).map_err(Error::io("starting `sh`"))?;
        Ok(Self { name, port: Port::reserve()?, process: Mutex::new(process), dir })
    }

    /// Returns the loopback address of the server, for TCP and UDP.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Starts the process and waits until `is_ready` returns true; a running process is killed
    /// first.
    ///
    /// # Errors
    /// [`Error::Exited`] if the process ends.
    pub(crate) fn start(
        &self,
        mut command: Command,
        is_ready: impl Fn() -> bool,
    ) -> Result<(), Error> {
        self.kill()?;
        self.spawn(&mut command)?;
        self.wait(|| Ok(is_ready().then_some(())))
    }

    /// Starts the process in its directory, without waiting for it. The previous process must be
    /// dead.
    pub(crate) fn spawn(&self, command: &mut Command) -> Result<(), Error> {
        let failed = || Error::io(format!("starting {}", self.name));
        let output = fs::File::options().create(true).append(true).open(self.log());
        let output = output.map_err(failed())?;
        let errors = output.try_clone().map_err(failed())?;
        command.current_dir(self.dir()).stderr(errors).stdout(output);
        self.process().spawn(command).map_err(failed())
    }

    /// Waits until `ask` returns a value.
    ///
    /// # Errors
    /// [`Error::Exited`] if the process ends.
    pub(crate) fn wait<T>(
        &self,
        mut ask: impl FnMut() -> Result<Option<T>, Error>,
    ) -> Result<T, Error> {
        poll(&format!("{} to answer", self.name), || match self.process().ended() {
            Some(status) => {
                let (name, tail) = (self.name, self.log_tail());
                Err(Error::Exited(format!("{name} exited: {status}\n{tail}")))
            }
            None => ask(),
        })
    }

    /// Returns the path of the file with the output of the process.
    pub(crate) fn log(&self) -> PathBuf {
        self.dir().join("output")
    }

    fn log_tail(&self) -> String {
        let text = fs::read(self.log()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text.lines().collect();
        // When a mongod aborts, its log ends with a stack trace, and the cause is logged far above
        // it, with the severity "fatal": a JSON field or, before 4.4, the second word.
        let is_fatal = |line: &&&str| {
            line.contains("\"s\":\"F\"") || line.split_whitespace().nth(1) == Some("F")
        };
        let last = lines.get(lines.len().saturating_sub(QUOTED_LINES)..);
        let fatal = lines.iter().find(is_fatal).into_iter();
        let quoted: Vec<_> = fatal.chain(last.unwrap_or_default()).copied().collect();
        quoted.join("\n")
    }

    /// Returns whether the process runs and is not paused by [`sigstop`](Self::sigstop).
    pub fn is_responsive(&self) -> bool {
        self.process().is_responsive()
    }

    /// Kills the process with SIGKILL and waits for its end. Does nothing if the process is already
    /// dead.
    pub fn kill(&self) -> Result<(), Error> {
        let doing = format!("killing {}", self.name);
        self.process().kill().map_err(Error::io(doing))
    }

    /// Freezes the server: its sockets stay open, but it does not answer.
    pub fn sigstop(&self) -> Result<(), Error> {
        self.signal("STOP")
    }

    /// Resumes the server after [`sigstop`](Self::sigstop). The server then answers the requests
    /// that arrived in the meantime.
    pub fn sigcont(&self) -> Result<(), Error> {
        self.signal("CONT")
    }

    fn signal(&self, name: &str) -> Result<(), Error> {
        let doing = format!("sending SIG{name} to {}", self.name);
        self.process().signal(name).map_err(Error::io(doing))
    }

    pub(crate) fn process(&self) -> MutexGuard<'_, Process> {
        // A panic elsewhere cannot leave the process in an inconsistent state.
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

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
    fn guarded(data: &Path) -> io::Result<Self> {
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
    fn signal(&mut self, name: &str) -> io::Result<()> {
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

/// Puts a child into a separate process group, so that the signals of the terminal do not reach it.
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

/// The first port of the range. It is below the operating system's ephemeral ports; otherwise,
/// outgoing connections would take most of the ports.
const FIRST: u16 = 15_000;
const COUNT: u16 = 16_000;

/// A loopback port, for TCP and UDP, that refuses clients unless a server listens on it.
///
/// While the value exists, neither the system nor another [`reserve`](Self::reserve) in any process
/// assigns the port again. A server can listen on it if it sets `SO_REUSEADDR`, as most servers and
/// `std::net::TcpListener` do, and can be restarted at any time. Systems other than Linux do not
/// let a server share a reserved port, so on these systems the port is only known to be free when
/// it is reserved.
#[derive(Debug)]
pub struct Port {
    address: SocketAddr,
    _reserved: Option<(Socket, UdpSocket)>,
}

impl Port {
    /// Reserves a port that is free.
    ///
    /// # Errors
    /// [`Error::State`] if no port is free.
    pub fn reserve() -> Result<Self, Error> {
        // Processes that start at the same time begin with different ports, so that they do not all
        // try the same ports.
        static NEXT: LazyLock<AtomicU32> =
            LazyLock::new(|| AtomicU32::new(RandomState::new().hash_one(()) as u32));
        (0..COUNT)
            .find_map(|_| {
                let step = NEXT.fetch_add(1, Ordering::Relaxed) % u32::from(COUNT);
                Self::bind((Ipv4Addr::LOCALHOST, FIRST + step as u16).into()).ok()
            })
            .ok_or_else(|| Error::State("no free port on loopback".to_owned()))
    }

    /// Binds sockets on which nothing arrives: the TCP socket does not listen, and the UDP socket
    /// accepts packets only from itself.
    fn bind(address: SocketAddr) -> io::Result<Self> {
        let tcp = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        tcp.bind(&address.into())?;
        let udp = UdpSocket::bind(address)?;
        udp.connect(address)?;
        // Allow sharing only after both sockets are bound, so that only one of two reservations can
        // succeed.
        tcp.set_reuse_address(true)?;
        SockRef::from(&udp).set_reuse_address(true)?;
        Ok(Self { address, _reserved: cfg!(target_os = "linux").then_some((tcp, udp)) })
    }

    /// Returns the address with the port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Returns the workspace's build directory, which git ignores and `cargo clean` removes.
pub fn target_dir() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let workspace = own.ancestors().nth(2).unwrap_or(Path::new("."));
    match env::var_os("CARGO_TARGET_DIR") {
        Some(dir) if !dir.is_empty() => workspace.join(dir),
        _ => workspace.join("target"),
    }
}

/// Creates a directory below `target/live` whose name begins with `purpose`; it is removed on drop.
pub(crate) fn work_dir(purpose: &str) -> io::Result<TempDir> {
    work_dir_in(&target_dir().join("live"), purpose)
}

/// Creates a directory in `parent` whose name begins with `purpose`; it is removed on drop. If
/// `parent` is missing, it is created as well.
pub fn work_dir_in(parent: &Path, purpose: &str) -> io::Result<TempDir> {
    fs::create_dir_all(parent)?;
    let mut builder = tempfile::Builder::new();
    builder.prefix(&format!("{purpose}-")).tempdir_in(parent)
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::process::Command;

    use super::Process;
    use crate::daemon::work_dir;
    use crate::error::poll;

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
