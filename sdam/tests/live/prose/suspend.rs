//! A client process that is suspended while its servers keep running.

use std::{
    env,
    io::{BufRead, BufReader},
    process::{Child, ChildStdout, Command, Stdio},
};

use super::*;

/// The environment variable that contains the connection string for the suspended process.
const CLIENT_URI: &str = "SDAM_LIVE_CLIENT_URI";

/// The options of the suspended client.
const OPTIONS: &str = "&heartbeatFrequencyMS=500&connectTimeoutMS=2000";

/// The time limit of a check with these options, in milliseconds.
const LIMIT: u64 = 2_500;

/// The name of the test [`process_that_is_suspended`].
const CLIENT: &str = "prose::suspend::process_that_is_suspended";

/// The duration of the suspension, counted in heartbeats of another client. This is more than twice
/// the time limit of a check.
const HEARTBEATS: usize = 12;

/// The maximum number of checks that may have ended before the signal stopped the client.
const MOST_BEFORE: usize = 1_000;

/// The client process and the lines it prints.
struct Client {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Client {
    fn start(uri: &str) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", CLIENT, "--nocapture"])
            .env(CLIENT_URI, uri)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// Returns the number on the next line that begins with `word`; panics if a failure comes
    /// first.
    fn wait_for(&mut self, word: &str) -> u64 {
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.lines.read_line(&mut line).unwrap();
            assert!(read > 0, "the client ended before it printed {word}");
            assert!(!line.starts_with("unknown") && !line.starts_with("failed"), "{line}");
            if let Some(at) = line.strip_prefix(word) {
                return at.trim().parse().unwrap();
            }
        }
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let kill = Command::new("sh")
            .args(["-c", "kill -s \"$1\" \"$2\"", "sh", name, &pid])
            .status()
            .unwrap();
        assert!(kill.success());
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // The result is ignored, because the process may already have ended. A stopped process has
        // to be killed, because it cannot end by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// F-11: a process that was suspended for longer than a check's time limit reads the data that its
/// server has sent in the meantime, instead of timing out.
#[test]
#[ignore = "deep: real servers"]
fn a_suspended_client_loses_no_server() {
    let Some(mongod) = standalone() else { return };
    let steady = if mongod.hello().unwrap().contains_key("topologyVersion") {
        "streamed"
    } else {
        assert!(version().is_some(), "the default server streams");
        "polled"
    };
    let uri = format!("mongodb://{}/?directConnection=true{OPTIONS}", mongod.host());
    let mut client = Client::start(&uri);
    client.wait_for(steady);
    let mut last = client.wait_for(steady);
    client.signal("STOP");
    let witness = observe(&mongod, "&heartbeatFrequencyMS=500");
    let mut mark = 0;
    for _ in 0..HEARTBEATS {
        (_, mark) = witness.wait_for("the server to go on", mark, succeeded);
    }
    client.signal("CONT");
    let suspended = (0..MOST_BEFORE).any(|_| {
        let next = client.wait_for(steady);
        next - std::mem::replace(&mut last, next) > LIMIT
    });
    assert!(suspended, "every check came in time");
    for _ in 0..HEARTBEATS {
        client.wait_for(steady);
    }
    drop(client.child.stdin.take());
    client.wait_for("closed");
    witness.finish();
}

/// The suspended process: prints the successful checks with their times, until its standard input
/// ends.
///
/// The test above runs it in a separate process; run by itself, it does nothing.
#[test]
fn process_that_is_suspended() {
    let Ok(uri) = env::var(CLIENT_URI) else {
        return;
    };
    let observer = Observer::start(&uri);
    std::thread::spawn({
        let topology = observer.topology.clone();
        move || {
            let _ = std::io::stdin().read(&mut [0]);
            futures::executor::block_on(topology.close());
        }
    });
    let mut next = 0;
    loop {
        let ((line, is_last), mark) = observer.wait_for("an event", next, |kind| match kind {
            EventKind::ServerHeartbeatSucceeded { heartbeat, .. } if heartbeat.awaited => {
                Some(("streamed", false))
            }
            EventKind::ServerHeartbeatSucceeded { .. } => Some(("polled", false)),
            EventKind::ServerDescriptionChanged { previous, new }
                if new.server_type == ServerType::Unknown
                    && previous.server_type != ServerType::Unknown =>
            {
                Some(("unknown", false))
            }
            EventKind::TopologyClosed => Some(("closed", true)),
            _ => None,
        });
        let at = observer.events()[mark - 1].at.as_nanos() / 1_000_000;
        println!("\n{line} {at}");
        next = mark;
        if is_last {
            break;
        }
    }
}
