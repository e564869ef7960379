//! A deployment to watch where there is none.

use std::time::Duration;

use futures::channel::mpsc::UnboundedSender;
use sdam::topology::Topology;
use sdam_core::address::ServerAddress;
use sdam_sim::{
    serve::{Builder, ReplicaSet, ServeError},
    timing::Timing,
};

use super::is_known;

/// How long the old primary takes to hand over: as long as one that has some work to finish.
const HAND_OVER: Duration = Duration::from_millis(400);
/// After that long something is wrong; it should take a tenth of it.
const PATIENCE: Duration = Duration::from_secs(30);

/// A simulated replica set, and what happens to it.
#[derive(Debug)]
pub(super) struct Demonstration {
    set: ReplicaSet,
    /// How long the new set is left alone, so that its discovery can be read.
    pause: Duration,
}

impl Demonstration {
    /// Starts a set of three members on loopback.
    pub(super) fn start(pause: Duration) -> Result<Self, ServeError> {
        let mut timing = Timing::brisk();
        timing.hand_over = HAND_OVER;
        let set = ReplicaSet::build(Builder::replica_set(3).timing(timing))?;
        Ok(Self { set, pause })
    }

    /// The connection string of the set.
    pub(super) fn uri(&self) -> &str {
        self.set.uri()
    }

    /// Lets the primary step down and waits until `topology` knows its successor; says on the way
    /// what happens.
    pub(super) async fn run(
        &self,
        topology: &Topology,
        notes: UnboundedSender<String>,
    ) -> Result<(), String> {
        // If nobody listens any more, nothing has to be said.
        let say = |note: String| drop(notes.unbounded_send(note));
        say(format!(
            "a simulated replica set, for any client: {}",
            self.uri()
        ));
        let primary = self.primary(topology, None).await?;
        tokio::time::sleep(self.pause).await;
        say(format!("asking the primary {primary} to step down"));
        self.set.step_down().map_err(|error| error.to_string())?;
        self.primary(topology, Some(&primary)).await?;
        say("the end; give a connection string to watch a real deployment".to_owned());
        Ok(())
    }

    /// Waits for a primary other than `old` and for whatever else there is to know.
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
            PATIENCE,
        );
        settled
            .await
            .ok_or_else(|| format!("no primary was found within {PATIENCE:?}"))
    }
}
