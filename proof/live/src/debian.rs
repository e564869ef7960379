//! Servers from Debian packages, unpacked below the build directory: Prometheus, the SOCKS5 proxy
//! microsocks, and tmux as a terminal.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

use tempfile::TempDir;

use crate::daemon::{Daemon, target_dir, work_dir};
use crate::error::{Error, Unavailable, poll};
use crate::fetch::{cannot, publish, run, staging};

/// The arguments of `apt-get` that download a package and its dependencies. The packages are not
/// installed, so no privileges are needed.
const DOWNLOAD: &str = "install --yes --quiet --download-only --no-install-recommends \
    -o Debug::NoLocking=true -o Acquire::http::Timeout=20";

/// Folders with server programs that are not on every user's search path.
const SBIN: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];

/// The programs of a package, and the libraries that they need.
#[derive(Clone, Debug)]
pub(crate) struct Package {
    directories: Vec<PathBuf>,
    libraries: Option<OsString>,
}

impl Package {
    /// Finds a package by one of its programs on the search path, or downloads it.
    ///
    /// # Errors
    /// Returns [`Unavailable`] if the package is not found. The reason names the remedy.
    pub(crate) fn find(name: &'static str, program: &str) -> Result<Self, Unavailable> {
        match installed(env::var_os("PATH").as_deref(), program) {
            Some(installed) => Ok(installed),
            None => Ok(Self::unpacked(&downloaded(name)?)),
        }
    }

    /// Creates a command that runs `program` from the package.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut paths = self.directories.iter().map(|dir| dir.join(program));
        let path = paths.find(|path| path.is_file());
        let mut command = Command::new(path.unwrap_or_else(|| PathBuf::from(program)));
        if let Some(libraries) = &self.libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        command
    }

    /// Returns the programs and libraries of an unpacked package.
    fn unpacked(root: &Path) -> Self {
        let directories = ["usr/sbin", "usr/bin", "sbin", "bin"];
        let libraries = library_directories(root);
        Self {
            directories: directories.map(|dir| root.join(dir)).to_vec(),
            libraries: env::join_paths(libraries).ok(),
        }
    }
}

fn installed(search: Option<&OsStr>, program: &str) -> Option<Package> {
    let on_path = env::split_paths(search?);
    let directories: Vec<_> = on_path.chain(SBIN.map(PathBuf::from)).collect();
    let found = directories.iter().any(|dir| dir.join(program).is_file());
    found.then_some(Package { directories, libraries: None })
}

/// Returns the path of a library from the system, or from a downloaded package.
///
/// # Errors
/// Returns [`Unavailable`] if the library is not found. The reason names the remedy.
pub(crate) fn library(name: &'static str, path: &str) -> Result<PathBuf, Unavailable> {
    let below = |root: &Path| {
        let mut paths = library_directories(root).map(|dir| dir.join(path));
        paths.find(|path| path.is_file())
    };
    if let Some(found) = below(Path::new("/")) {
        return Ok(found);
    }
    below(&downloaded(name)?)
        .ok_or_else(|| Unavailable::new(format!("the Debian package {name} has no {path}")))
}

fn library_directories(root: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let parents = ["usr/lib", "lib"].map(|dir| root.join(dir));
    parents.into_iter().flat_map(|parent| {
        let entries = fs::read_dir(parent).into_iter().flatten();
        let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
        paths.filter(|path| path.is_dir())
    })
}

/// Returns a package that is unpacked in `target/debian`. If the package is missing there, it is
/// downloaded with `apt-get`, and the download is reported on standard error.
fn downloaded(name: &'static str) -> Result<PathBuf, Unavailable> {
    /// The outcomes of downloads. Tests in the same process wait for each other's downloads, and do
    /// not repeat a failed download.
    static OUTCOMES: Mutex<BTreeMap<&str, Result<PathBuf, Unavailable>>> =
        Mutex::new(BTreeMap::new());
    let mut outcomes = OUTCOMES.lock().unwrap_or_else(PoisonError::into_inner);
    outcomes
        .entry(name)
        .or_insert_with(|| cached_or_fetched(&target_dir().join("debian"), name))
        .clone()
}

fn cached_or_fetched(cache: &Path, name: &str) -> Result<PathBuf, Unavailable> {
    let home = cache.join(name);
    if !home.is_dir() {
        eprintln!("fetching {name} with apt-get");
        fetch(cache, &home, name)?;
    }
    Ok(home)
}

/// Unpacks everything in a private directory and then moves that directory to `home` in one step.
/// The cache is therefore always complete, even if two processes fetch the same package.
fn fetch(cache: &Path, home: &Path, name: &str) -> Result<(), Unavailable> {
    let remedy = format!("install the Debian package {name}");
    let staging = staging(cache)?;
    let archives = staging.path().join("archives");
    let create =
        |dir: &Path| fs::create_dir_all(dir).map_err(|error| cannot("create", dir, &error));
    create(&archives.join("partial"))?;
    let cached = option("Dir::Cache", staging.path());
    let apt = |arguments: &str| {
        let mut apt = Command::new("apt-get");
        apt.args(arguments.split_whitespace()).args(["-o", &cached]);
        apt
    };
    if run(apt(DOWNLOAD).arg(name), &remedy).is_err() {
        // The system's package lists may be missing or outdated, and only root may update them, so
        // private lists are downloaded.
        let lists = staging.path().join("lists");
        create(&lists.join("partial"))?;
        let lists = option("Dir::State::Lists", &lists);
        let mut update =
            apt("update --quiet -o Debug::NoLocking=true -o Acquire::http::Timeout=20");
        run(update.args(["-o", &lists]), &remedy)?;
        run(apt(DOWNLOAD).args(["-o", &lists]).arg(name), &remedy)?;
    }
    let unpacked = staging.path().join("unpacked");
    let found = fs::read_dir(&archives).map_err(|error| cannot("read", &archives, &error))?;
    for archive in found.filter_map(Result::ok).map(|entry| entry.path()) {
        if archive.extension() == Some(OsStr::new("deb")) {
            let mut unpack = Command::new("dpkg-deb");
            run(unpack.arg("--extract").arg(archive).arg(&unpacked), &remedy)?;
        }
    }
    // The documentation is removed, because it would take up most of the cache.
    let _ = fs::remove_dir_all(unpacked.join("usr/share"));
    publish(&unpacked, home)
}

/// Returns an argument for `apt-get` that sets its directory option `name` to `dir`.
fn option(name: &str, dir: &Path) -> String {
    format!("{name}={}", dir.display())
}

/// A Prometheus server on a loopback port, with its data in a temporary directory.
///
/// Dropping it kills the process.
#[derive(Debug)]
pub struct Prometheus {
    package: Package,
    daemon: Daemon,
}

impl Prometheus {
    /// Starts a server with the given configuration, which is in YAML, and waits until the server
    /// answers.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if Prometheus is not installed and cannot be fetched; see
    /// [`or_skip`](crate::or_skip).
    pub fn start(configuration: &str) -> Result<Self, Error> {
        let server = Self {
            package: Package::find("prometheus", "prometheus")?,
            daemon: Daemon::new("prometheus")?,
        };
        let path = server.daemon.dir().join("prometheus.yml");
        fs::write(path, configuration).map_err(Error::io("writing prometheus.yml"))?;
        let mut command = server.package.command("prometheus");
        command.args([
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=data",
            &format!("--web.listen-address={}", server.daemon.address()),
        ]);
        let ready = || server.get("/-/ready").is_ok_and(|answer| answer.contains(" 200 "));
        server.daemon.start(command, ready)?;
        Ok(server)
    }

    /// Returns the result of a PromQL query as JSON.
    pub fn query(&self, query: &str) -> Result<String, Error> {
        let target = query.bytes().fold("/api/v1/query?query=".to_owned(), |target, byte| {
            target + &format!("%{byte:02X}")
        });
        let answer = self.get(&target)?;
        let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        Ok(body.to_owned())
    }

    /// Runs `promtool` in a directory, with `input` as standard input. This does not require a
    /// running server.
    ///
    /// # Errors
    /// The errors of [`start`](Self::start).
    pub fn promtool(directory: &Path, arguments: &[&str], input: &str) -> Result<Output, Error> {
        let mut command = Package::find("prometheus", "promtool")?.command("promtool");
        let mut run = || {
            let mut child = command
                .current_dir(directory)
                .args(arguments)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()?;
            if let Some(mut pipe) = child.stdin.take() {
                pipe.write_all(input.as_bytes())?;
            }
            child.wait_with_output()
        };
        run().map_err(Error::io("running promtool"))
    }

    /// Returns the head and body of a response. Uses HTTP 1.0, in which responses are not chunked.
    fn get(&self, target: &str) -> Result<String, Error> {
        let address: SocketAddr = self.daemon.address();
        let ask = || {
            let mut stream = TcpStream::connect(address)?;
            write!(stream, "GET {target} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).map(|_| answer)
        };
        ask().map_err(Error::io("asking Prometheus"))
    }
}

/// A SOCKS5 proxy on a loopback port (RFC 1928, RFC 1929). It resolves names with the system's
/// resolver.
///
/// Dropping it kills the process, which ends all connections through the proxy.
#[derive(Debug)]
pub struct Socks {
    package: Package,
    credentials: Option<[String; 2]>,
    daemon: Daemon,
}

impl Socks {
    /// Starts a proxy without authentication, and waits until it listens.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if microsocks is not installed and cannot be fetched; see
    /// [`or_skip`](crate::or_skip).
    pub fn start() -> Result<Self, Error> {
        Self::launch(None)
    }

    /// Starts a proxy that requires the given user name and password.
    pub fn start_secured(user: &str, password: &str) -> Result<Self, Error> {
        Self::launch(Some([user.to_owned(), password.to_owned()]))
    }

    fn launch(credentials: Option<[String; 2]>) -> Result<Self, Error> {
        let socks = Self {
            package: Package::find("microsocks", "microsocks")?,
            credentials,
            daemon: Daemon::new("microsocks")?,
        };
        socks.restart()?;
        Ok(socks)
    }

    /// Restarts the proxy on the same port; a running one is killed first.
    pub fn restart(&self) -> Result<(), Error> {
        let address = self.address();
        let mut command = self.package.command("microsocks");
        command.args(["-i", &address.ip().to_string()]);
        command.args(["-p", &address.port().to_string()]);
        if let Some([user, password]) = &self.credentials {
            command.args(["-u", user, "-P", password]);
        }
        let listens = || TcpStream::connect(address).is_ok();
        self.daemon.start(command, listens)
    }
}

impl Deref for Socks {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.daemon
    }
}

/// A terminal with a shell, in a separate tmux server.
///
/// Dropping it kills the tmux server, and the programs in the terminal receive SIGHUP.
#[derive(Debug)]
pub struct Terminal {
    package: Package,
    dir: TempDir,
}

/// The prompt of the shell.
const PROMPT: &str = "ready$ ";

impl Terminal {
    /// Opens a terminal of the given size, and waits for the shell's prompt.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if tmux is not installed and cannot be fetched; see
    /// [`or_skip`](crate::or_skip).
    pub fn open(width: u16, height: u16) -> Result<Self, Error> {
        let terminal = Self {
            package: Package::find("tmux", "tmux")?,
            dir: work_dir("tmux").map_err(Error::io("create the directory of tmux"))?,
        };
        let new = format!("-f /dev/null new-session -d -x {width} -y {height}");
        // The shell is interactive, so it has job control. Its start-up files are disabled, so it
        // prints nothing but the prompt.
        let shell = format!("env -u ENV LC_ALL=C.UTF-8 PS1='{PROMPT}' sh -i");
        terminal.tmux(new.split(' ').chain([&*shell]))?;
        terminal.wait_for(PROMPT.trim_end())?;
        Ok(terminal)
    }

    /// Types a line for the shell, or for the program that reads it.
    pub fn line(&self, text: &str) -> Result<(), Error> {
        self.tmux(["send-keys", "-l", "--", text])?;
        self.key("Enter")
    }

    /// Presses a key. `name` is the name of the key in tmux, such as `q`, `Enter`, `C-c` or `Up`.
    pub fn key(&self, name: &str) -> Result<(), Error> {
        self.tmux(["send-keys", name]).map(drop)
    }

    /// Changes the size of the terminal.
    pub fn resize(&self, width: u16, height: u16) -> Result<(), Error> {
        let (width, height) = (width.to_string(), height.to_string());
        self.tmux(["resize-window", "-x", &width, "-y", &height]).map(drop)
    }

    /// Returns the contents of the terminal, without trailing spaces.
    pub fn shown(&self) -> Result<String, Error> {
        self.tmux(["capture-pane", "-p"])
    }

    /// Returns the contents of the terminal, including the escape sequences for colours.
    pub fn coloured(&self) -> Result<String, Error> {
        self.tmux(["capture-pane", "-p", "-e"])
    }

    /// Returns the value of a tmux format, such as `#{alternate_on}`.
    pub fn state(&self, format: &str) -> Result<String, Error> {
        let state = self.tmux(["display-message", "-p", format])?;
        Ok(state.trim_end().to_owned())
    }

    /// Waits until the terminal contains `text`, and returns the terminal's whole contents.
    ///
    /// # Errors
    /// If `text` does not appear; the error contains the current contents.
    pub fn wait_for(&self, text: &str) -> Result<String, Error> {
        self.wait_until(text, |shown| shown.contains(text))
    }

    /// Waits until the contents of the terminal meet a condition, and then returns the contents.
    pub fn wait_until(
        &self,
        awaited: &str,
        is_met: impl Fn(&str) -> bool,
    ) -> Result<String, Error> {
        let mut last = String::new();
        let found = poll(&format!("`{awaited}` on the terminal"), || {
            last = self.shown()?;
            Ok(is_met(&last).then(|| last.clone()))
        });
        found.map_err(|error| Error::Protocol(format!("{error}; it shows:\n{last}")))
    }

    fn tmux<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Result<String, Error> {
        let socket = self.dir.path().join("socket");
        let mut command = self.package.command("tmux");
        // The tests may themselves run in a terminal, whose environment variables are removed.
        command.env_remove("TMUX").env_remove("NO_COLOR");
        command.env("LC_ALL", "C.UTF-8").arg("-u").arg("-S").arg(socket);
        let output = command.args(arguments).output().map_err(Error::io("run tmux"))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let complaint = String::from_utf8_lossy(&output.stderr);
        Err(Error::Protocol(format!("tmux: {}", complaint.trim())))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Errors are ignored, because the server may have ended together with its shell.
        let _ = self.tmux(["kill-server"]);
    }
}
