//! A failover of a real replica set, recorded by one program and replayed by another.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod pieces;

use std::{
    env, fs,
    future::pending,
    io,
    path::PathBuf,
    process,
    sync::{
        Arc,
        mpsc::{self, Receiver},
    },
    thread,
    time::Duration,
};

use futures::channel::oneshot;
use sdam_cli::{
    console::Console,
    exit::Exit,
    replay,
    target::Target,
    terminal::Palette,
    watch::{self, Arguments},
};
use sdam_live::{Certificates, Dns, MemberSpec, Record, ReplicaSet, ServerTls, or_skip};
use serde_json::Value;

use pieces::{Pieces, TIMEOUT};

/// A temporary file of this process.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // The test may not have created the file.
        let _ = fs::remove_file(&self.0);
    }
}

fn wait_for(pieces: &Receiver<String>, wanted: &[&str]) -> Result<(), String> {
    let mut heard = String::new();
    while !wanted.iter().any(|wanted| heard.contains(wanted)) {
        let piece = pieces.recv_timeout(TIMEOUT);
        heard += &piece.map_err(|error| format!("{error}: no {wanted:?} in {heard}"))?;
    }
    Ok(())
}

fn primary(snapshot: &Value) -> Option<String> {
    let mut servers = snapshot["servers"].as_array()?.iter();
    let primary = servers.find(|server| server["type"] == "RSPrimary")?;
    Some(primary["address"].as_str()?.to_owned())
}

#[test]
fn a_wrong_set_name_is_reported_with_the_right_one() {
    let members = [MemberSpec::new()];
    let Some(set) = or_skip(ReplicaSet::start(None, &members)).unwrap() else {
        return;
    };
    let host = set.member(0).host();
    let uri = format!("mongodb://{host}/?replicaSet=wrong");
    let check = |uri: &str| {
        let mut arguments = Arguments::default();
        arguments.target = Target::new(uri);
        arguments.once = true;
        // With `directConnection`, the only server stays in the topology, so the wait times out.
        arguments.timeout = Some(Duration::from_secs(2));
        let mut output = Vec::new();
        let console = Console {
            output: &mut output,
            remarks: io::sink(),
            palette: Palette::Plain,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let exit = runtime.block_on(watch::run(&arguments, console, pending()));
        assert_eq!(exit.unwrap(), Exit::NEITHER);
        let text = String::from_utf8(output).unwrap();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let reason = format!(
            "belongs to the set `{0}`, not `wrong`: use replicaSet={0}",
            set.name()
        );
        assert!(text.contains(&host), "{text}");
        assert!(text.contains(&reason), "{text}");
    };
    check(&uri);
    check(&format!("{uri}&directConnection=true"));
}

/// Watches until a real set has had a failover.
fn watch_failover(set: &ReplicaSet, arguments: Arguments) {
    let (sender, pieces) = mpsc::channel();
    let (interrupt, interrupted) = oneshot::channel();
    let program = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let console = Console {
            output: Pieces(sender),
            remarks: io::stderr(),
            palette: Palette::Plain,
        };
        let interrupted = async {
            let _ = interrupted.await;
        };
        runtime.block_on(watch::run(&arguments, console, interrupted))
    });
    wait_for(&pieces, &["ReplicaSetWithPrimary"]).unwrap();
    set.step_down().unwrap();
    // The new primary may be known before the loss of the old one, or between two checks of it.
    wait_for(&pieces, &["no primary for ", "never without primary: "]).unwrap();
    interrupt.send(()).unwrap();
    assert_eq!(program.join().unwrap().unwrap(), Exit::SUCCESS);
}

#[test]
fn a_failover_behind_an_srv_record_and_tls_is_shown() {
    let certificates = Arc::new(Certificates::create().unwrap());
    let member = |name| MemberSpec::new().horizon(&format!("{name}.sdam.example"));
    let set = ReplicaSet::builder(None).tls(ServerTls::new(&certificates));
    let Some(set) = or_skip(set.start(&["a", "b", "c"].map(member))).unwrap() else {
        return;
    };
    let members = set.members().zip(["a", "b", "c"]).map(|(member, name)| {
        let port = member.address().port();
        (format!("{name}.sdam.example"), port)
    });
    let members: Vec<_> = members.collect();
    let service = "_mongodb._tcp.cluster.sdam.example";
    let record = |(name, port): &(String, u16)| Record::srv(service, name, *port);
    let Some(dns) = or_skip(Dns::start(members.iter().map(record))).unwrap() else {
        return;
    };
    let place = |(name, port): &(String, u16)| format!("{name}:{port}=127.0.0.1:{port}");
    let places: Vec<_> = members.iter().map(place).collect();
    let mut arguments = Arguments::default();
    arguments.target = Target::new(&format!(
        "mongodb+srv://cluster.sdam.example/?heartbeatFrequencyMS=500&{}",
        certificates.options(),
    ));
    arguments.target.dns = Some(dns.address());
    arguments.target.translate = Some(places.join(",").parse().unwrap());
    watch_failover(&set, arguments);
}

#[test]
fn a_real_failover_is_recorded_and_replayed() {
    let members = [MemberSpec::new(), MemberSpec::new(), MemberSpec::new()];
    let Some(set) = or_skip(ReplicaSet::start(None, &members)).unwrap() else {
        return;
    };
    let file = Scratch(env::temp_dir().join(format!("sdam-live-{}.jsonl", process::id())));
    let mut arguments = Arguments::default();
    arguments.target = Target::new(&format!("{}&heartbeatFrequencyMS=500", set.uri()));
    arguments.record = Some(file.0.clone());
    watch_failover(&set, arguments);

    let recording = fs::read(&file.0).unwrap();
    let (mut output, mut remarks) = (Vec::new(), Vec::new());
    let exit = replay::trace("in.jsonl", &*recording, &mut output, &mut remarks).unwrap();
    let remarks = String::from_utf8(remarks).unwrap();
    assert_eq!(exit, Exit::SUCCESS, "{remarks}");
    let snapshots = serde_json::Deserializer::from_slice(&output).into_iter::<Value>();
    let mut primaries: Vec<String> = snapshots.filter_map(|it| primary(&it.unwrap())).collect();
    primaries.dedup();
    assert!(primaries.len() >= 2, "{primaries:?}");
}
