//! Runs the user's program on each change (`--on-change`).

use std::{io, process::Stdio, sync::Arc, time::Duration};

use futures::{
    StreamExt,
    channel::mpsc::{UnboundedReceiver, UnboundedSender},
};
#[cfg(unix)]
use rustix::process::{Pid, Signal, kill_process_group};
use sdam_core::{
    event::{Event, EventKind, EventName},
    topology::TopologyDescription,
};
use sdam_events::sink::{EventSink, sink_fn};
use tokio::{io::AsyncWriteExt, process::Command, time::timeout};

use crate::{
    json::{self, RoundTrips},
    terminal::json_line,
};

/// The time limit of each run.
pub(super) const LIMIT: Duration = Duration::from_secs(10);

/// Runs `program` in the shell for the first description that arrives, and again whenever the type
/// of the topology changes, the primary changes, or writes become possible or impossible. Sends
/// failures to `notes`.
///
/// Only one run takes place at a time. Changes that arrive during a run lead to one further run,
/// with the newest state.
pub(super) async fn run(
    program: String,
    mut changes: UnboundedReceiver<Arc<TopologyDescription>>,
    notes: UnboundedSender<String>,
    limit: Duration,
) {
    let mut last = None;
    while let Some(mut newest) = changes.next().await {
        while let Ok(newer) = changes.try_recv() {
            newest = newer;
        }
        let state = state(&newest);
        if last.as_ref() == Some(&state) {
            continue;
        }
        if let Err(why) = run_once(&program, &newest, &state, limit).await {
            // Sending fails if the user has quit.
            let _ = notes.unbounded_send(format!("--on-change: {why}"));
        }
        last = Some(state);
    }
}

/// Returns a sink that passes new descriptions of the topology to [`run`].
pub(super) fn sink(changes: UnboundedSender<Arc<TopologyDescription>>) -> impl EventSink {
    let pass = move |event: &Event| {
        if let EventKind::TopologyDescriptionChanged { new, .. } = &event.kind {
            // Sending fails if the watch has ended.
            let _ = changes.unbounded_send(Arc::clone(new));
        }
    };
    sink_fn(pass).interested_in(EventName::TopologyDescriptionChanged.into())
}

/// The environment variables that describe the state to the program.
type State = [(&'static str, String); 3];

fn state(topology: &TopologyDescription) -> State {
    let primary = topology.primary().map_or(String::new(), |own| own.address.to_string());
    [
        ("SDAM_TOPOLOGY_TYPE", topology.topology_type().to_string()),
        ("SDAM_PRIMARY", primary),
        ("SDAM_WRITABLE", u8::from(topology.has_writable_server()).to_string()),
    ]
}

async fn run_once(
    program: &str,
    topology: &TopologyDescription,
    state: &State,
    limit: Duration,
) -> Result<(), String> {
    let mut command = Command::new(if cfg!(windows) { "cmd" } else { "sh" });
    command
        .args([if cfg!(windows) { "/C" } else { "-c" }, program])
        .envs(state.clone())
        .stdin(Stdio::piped())
        // Discard the output, because only the full screen may write to the terminal.
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    #[cfg(unix)]
    command.process_group(0);
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let id = child.id();
    let input = format!("{}\n", json_line(&json::snapshot(topology, RoundTrips::LeftOut)));
    let ended = async {
        if let Some(mut pipe) = child.stdin.take() {
            match pipe.write_all(input.as_bytes()).await {
                // Ignore this error, because the program may end without reading its input.
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error),
                _ => {}
            }
        }
        child.wait().await
    };
    match timeout(limit, ended).await {
        Err(_) => {
            end_group(id);
            Err(format!("it was ended after {} s", limit.as_secs_f64()))
        }
        Ok(Err(error)) => Err(error.to_string()),
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(status.to_string()),
    }
}

/// Kills the processes that the shell has started. The shell itself is killed when the child
/// process is dropped.
fn end_group(id: Option<u32>) {
    #[cfg(unix)]
    if let Some(group) = id.and_then(|id| Pid::from_raw(id.cast_signed())) {
        // Killing fails if the processes have just ended.
        let _ = kill_process_group(group, Signal::KILL);
    }
    #[cfg(not(unix))]
    let _ = id;
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use std::fs;

    use futures::channel::mpsc::unbounded;
    use sdam_core::{
        address::ServerAddress,
        ids::ServerId,
        server::{ServerDescription, ServerType},
        topology::TopologyType,
    };

    use super::*;
    use crate::testing::block_on;

    fn topology(server_type: ServerType) -> Arc<TopologyDescription> {
        let address = ServerAddress::new("a", 1);
        let mut server = ServerDescription::unknown(ServerId::from_u64(1), address);
        server.server_type = server_type;
        let topology_type = match server_type {
            ServerType::RsPrimary => TopologyType::ReplicaSetWithPrimary,
            _ => TopologyType::ReplicaSetNoPrimary,
        };
        Arc::new(TopologyDescription::new(topology_type, [server]))
    }

    /// Runs `program` for each of `changes`, one after another; returns the notes.
    fn notes_of(program: &str, changes: &[ServerType], limit: Duration) -> Vec<String> {
        block_on(async {
            let (notes, heard) = unbounded();
            for server_type in changes {
                let (sender, receiver) = unbounded();
                sender.unbounded_send(topology(*server_type)).unwrap();
                drop(sender);
                run(program.to_owned(), receiver, notes.clone(), limit).await;
            }
            drop(notes);
            heard.collect().await
        })
    }

    #[test]
    fn the_program_gets_the_state_in_variables_and_as_json() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("out");
        let program = format!(
            "echo \"$SDAM_TOPOLOGY_TYPE $SDAM_PRIMARY $SDAM_WRITABLE\" >> {0}; cat >> {0}",
            file.display()
        );
        let changes = [ServerType::RsPrimary, ServerType::RsSecondary];
        assert_eq!(notes_of(&program, &changes, LIMIT), [""; 0]);
        let text = fs::read_to_string(file).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "ReplicaSetWithPrimary a:1 1");
        assert_eq!(lines[2], "ReplicaSetNoPrimary  0");
        for json in [lines[1], lines[3]] {
            let json: serde_json::Value = serde_json::from_str(json).unwrap();
            assert_eq!(json["servers"][0]["address"], "a:1");
        }
    }

    #[test]
    fn changes_during_a_run_and_equal_states_lead_to_one_run() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("out");
        let program = format!("echo \"$SDAM_WRITABLE\" >> {}", file.display());
        let (notes, heard) = unbounded();
        block_on(async {
            let (sender, receiver) = unbounded();
            for server_type in [ServerType::RsPrimary, ServerType::RsSecondary] {
                sender.unbounded_send(topology(server_type)).unwrap();
            }
            drop(sender);
            run(program, receiver, notes, LIMIT).await;
        });
        assert_eq!(fs::read_to_string(file).unwrap(), "0\n");
        assert_eq!(block_on(heard.collect::<Vec<_>>()), [""; 0]);
    }

    #[test]
    fn failures_and_programs_that_do_not_end_are_noted() {
        let one = [ServerType::RsPrimary];
        let said = notes_of("exit 3", &one, LIMIT);
        assert_eq!(said, ["--on-change: exit status: 3"]);
        let said = notes_of("sleep 60", &one, Duration::from_millis(50));
        assert_eq!(said, ["--on-change: it was ended after 0.05 s"]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_processes_of_a_program_that_is_ended_end_too() {
        let one = [ServerType::RsPrimary];
        // The second run can take the lock only if the first run's process has ended.
        let lock = tempfile::NamedTempFile::new().unwrap();
        let path = lock.path().display();
        let said = notes_of(&format!("flock {path} sleep 60; true"), &one, Duration::from_secs(1));
        assert_eq!(said, ["--on-change: it was ended after 1 s"]);
        assert_eq!(notes_of(&format!("flock {path} true"), &one, LIMIT), [""; 0]);
    }
}
