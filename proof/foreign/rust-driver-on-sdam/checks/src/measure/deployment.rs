//! Simulated servers in another process, and clients that know all servers.

use std::{
    collections::BTreeSet,
    env,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use mongodb::{
    Client, ServerType,
    event::{EventHandler, sdam::SdamEvent},
    options::ClientOptions,
};
use tokio::{sync::watch, time::timeout};

use super::server::Kind;
use crate::{Result, observer::DEADLINE};

/// A heartbeat interval that keeps the monitors of a started client idle.
pub const NO_HEARTBEATS: Duration = Duration::from_secs(3600);

/// A deployment in another process. Dropping it ends the process.
#[derive(Debug)]
pub struct Deployment {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    uri: String,
    members: usize,
}

impl Deployment {
    pub fn start(kind: Kind, members: usize) -> Result<Self> {
        let mut process = Command::new(env::current_exe()?)
            .args(["serve", kind.name(), &members.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = process.stdin.take();
        let output = process.stdout.take().ok_or("no standard output")?;
        let mut output = BufReader::new(output);
        let mut uri = String::new();
        output.read_line(&mut uri)?;
        Ok(Self { process, input, output, uri: uri.trim().to_owned(), members })
    }

    /// Returns options for a client that selects any member, however slowly it answers.
    pub async fn options(&self) -> Result<ClientOptions> {
        let mut options = ClientOptions::parse(&self.uri).await?;
        options.server_selection_timeout = Some(DEADLINE);
        options.local_threshold = Some(DEADLINE);
        Ok(options)
    }

    /// Makes the members push replies in turn, with a pause before each, and waits until the last
    /// one is sent.
    pub fn push(&mut self, number: usize, pause: Duration) -> Result<()> {
        let input = self.input.as_mut().ok_or("no standard input")?;
        writeln!(input, "push {number} {}", pause.as_micros())?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        if line.trim() == "done" {
            return Ok(());
        }
        Err("the simulated servers have ended".into())
    }
}

impl Drop for Deployment {
    fn drop(&mut self) {
        drop(self.input.take());
        // The process ends on its own; the kill is only a safeguard.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The servers known to a client.
#[derive(Debug, Default)]
struct Known {
    /// Servers of a known type.
    described: BTreeSet<String>,
    /// Servers with an awaited heartbeat, so that they stream their changes.
    streaming: BTreeSet<String>,
}

/// Waits until a client knows all servers.
#[derive(Debug)]
pub struct Ready {
    known: watch::Receiver<Known>,
    members: usize,
}

impl Ready {
    /// Adds an event handler that calls `first` and then records the servers.
    pub fn attach(
        options: &mut ClientOptions,
        deployment: &Deployment,
        first: impl Fn(&SdamEvent) + Send + Sync + 'static,
    ) -> Self {
        let (sender, known) = watch::channel(Known::default());
        options.sdam_event_handler = Some(EventHandler::callback(move |event| {
            first(&event);
            sender.send_if_modified(|known| match event {
                SdamEvent::ServerDescriptionChanged(event)
                    if event.new_description.server_type() != ServerType::Unknown =>
                {
                    known.described.insert(event.address.to_string())
                }
                SdamEvent::ServerHeartbeatStarted(event) if event.awaited => {
                    known.streaming.insert(event.server_address.to_string())
                }
                _ => false,
            });
        }));
        Self { known, members: deployment.members }
    }

    /// Waits until all servers are known and streaming.
    pub async fn wait(mut self) -> Result<()> {
        let complete = |known: &Known| {
            known.described.len() == self.members && known.streaming.len() == self.members
        };
        if timeout(4 * DEADLINE, self.known.wait_for(complete)).await.is_ok() {
            return Ok(());
        }
        let known = self.known.borrow();
        let (described, streaming) = (known.described.len(), known.streaming.len());
        Err(format!("{described} servers are known, {streaming} stream").into())
    }
}

/// Starts a client of the deployment and waits until it knows all servers.
pub async fn start(deployment: &Deployment, heartbeats: Option<Duration>) -> Result<Client> {
    let mut options = deployment.options().await?;
    options.heartbeat_freq = heartbeats;
    let ready = Ready::attach(&mut options, deployment, |_| {});
    let client = Client::with_options(options)?;
    ready.wait().await?;
    Ok(client)
}
