//! A simulated deployment with a step-down, for runs with `--demo`.

use std::time::Duration;

use futures::channel::mpsc::UnboundedSender;
use sdam::Topology;
use sdam_core::address::ServerAddress;
use sdam_sim::{Blueprint, Served, serve::ServeError, timing::Timing};

use super::is_known;

/// The time that the old primary takes to hand over, as if it had to finish operations.
const HAND_OVER: Duration = Duration::from_millis(400);
/// The time limit of each wait, which is more than ten times as long as a wait normally takes.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A simulated replica set and its scripted step-down.
#[derive(Debug)]
pub(super) struct Demonstration {
    set: Served,
    /// The pause after the start, which gives the user time to read about the discovery.
    pause: Duration,
}

impl Demonstration {
    /// Starts a set of three members on loopback.
    pub(super) fn start(pause: Duration) -> Result<Self, ServeError> {
        let mut timing = Timing::fast();
        timing.hand_over = HAND_OVER;
        let set = Blueprint::replica_set(3).timing(timing).serve()?;
        Ok(Self { set, pause })
    }

    /// Returns the connection string of the set.
    pub(super) fn uri(&self) -> &str {
        self.set.uri()
    }

    /// Steps the primary down and waits until `topology` knows the new one. Sends a note about each
    /// step.
    pub(super) async fn run(
        &self,
        topology: &Topology,
        notes: UnboundedSender<String>,
    ) -> Result<(), String> {
        // Sending fails if the receiver is closed, and the note is then dropped.
        let say = |note: String| drop(notes.unbounded_send(note));
        let primary = self.primary(topology, None).await?;
        tokio::time::sleep(self.pause).await;
        say(format!("asking the primary {primary} to step down"));
        // The next step does not yield, so let the note be shown first.
        tokio::task::yield_now().await;
        self.set.step_down().map_err(|error| error.to_string())?;
        self.primary(topology, Some(&primary)).await?;
        say("the end; give a connection string to watch a real deployment".to_owned());
        Ok(())
    }

    /// Waits until a primary other than `old` and all other members are known.
    async fn primary(
        &self,
        topology: &Topology,
        old: Option<&ServerAddress>,
    ) -> Result<ServerAddress, String> {
        let settled = topology.wait_for(
            |now| {
                let description = now.description();
                let primary = &description.primary()?.address;
                (is_known(description) && Some(primary) != old).then(|| primary.clone())
            },
            TIMEOUT,
        );
        settled.await.ok_or_else(|| format!("no primary was found within {TIMEOUT:?}"))
    }
}
