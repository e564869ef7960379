//! A terminal for full-screen programs: tmux.

use tempfile::TempDir;

use crate::debian::Package;
use crate::error::Error;
use crate::wait::poll;
use crate::workdir::work_dir;

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
