//! Tests complete runs of the program over real sockets, with simulated deployments.

mod manifests;
mod prometheus;
mod reload;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    future::pending,
    io::Read,
    net::{Shutdown, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::Instant,
};

use futures::channel::oneshot;
use sdam_core::options::Options;
use sdam_live::{Port, Prometheus, or_skip};
use sdam_sim::{Blueprint, Served};
use serde_json::Value;
use tempfile::NamedTempFile;

use super::*;
use crate::{
    target::Target,
    testing::{Lines, block_on, capture, with_arbiter},
};

/// A running program.
pub(super) struct Running {
    address: SocketAddr,
    /// The remarks that the program prints, line by line.
    pub(super) remarks: mpsc::Receiver<String>,
    interrupt: oneshot::Sender<()>,
    thread: thread::JoinHandle<Exit>,
    /// The targets file that the program follows.
    targets: Option<NamedTempFile>,
}

impl Running {
    fn start(uri: &str) -> Self {
        Self::start_with(Arguments { target: Target::new(uri), ..Arguments::default() })
    }

    /// Starts a program that watches the deployments in `targets`, the text of a targets file.
    fn start_many(targets: &str) -> Self {
        Self::follow(targets, Arguments::default())
    }

    fn follow(targets: &str, arguments: Arguments) -> Self {
        let mut file = NamedTempFile::new().unwrap();
        file.write_all(targets.as_bytes()).unwrap();
        let targets = Some(file.path().to_owned());
        let program = Self::start_with(Arguments { targets, ..arguments });
        Self { targets: Some(file), ..program }
    }

    pub(super) fn start_with(mut arguments: Arguments) -> Self {
        arguments.listen = "127.0.0.1:0".parse().unwrap();
        let (sender, lines) = mpsc::channel();
        let (interrupt, interrupted) = oneshot::channel();
        let (say, remarks) = mpsc::channel();
        let thread = thread::spawn(move || {
            let interrupted = async {
                let _ = interrupted.await;
            };
            let [output, remarks] = [sender, say].map(Lines::new);
            block_on(run(&arguments, output, remarks, interrupted)).unwrap()
        });
        let first = lines.recv().expect("the address");
        let address = first.strip_prefix("http://").unwrap().parse().unwrap();
        Self { address, remarks, interrupt, thread, targets: None }
    }

    /// Sends a request, and returns the status and the body of the answer.
    fn ask(&self, method: &str, target: &str) -> (u16, String) {
        let reply = self.send(&format!("{method} {target} HTTP/1.1\r\nHost: h\r\n\r\n"));
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), body.to_owned())
    }

    /// Sends the head of a request, and returns the whole answer.
    fn send(&self, head: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    }

    pub(super) fn get(&self, target: &str) -> (u16, String) {
        self.ask("GET", target)
    }

    /// Repeats a request until the answer has the status `status`.
    pub(super) fn get_until(&self, target: &str, status: u16) -> String {
        self.get_while(target, |code, _| code != status)
    }

    /// Repeats the probe of a deployment until its first checks have ended. Returns the last page.
    fn get_until_known(&self, name: &str) -> String {
        self.get_while(&format!("/probe?target={name}"), |_, page| {
            !page.contains("sdam_known{") || !page.contains("sdam_up{")
        })
    }

    /// Repeats a request while the status and the body are `unwanted`. Returns the last body.
    fn get_while(&self, target: &str, unwanted: impl Fn(u16, &str) -> bool) -> String {
        let mut last = self.get(target);
        wait_until(target, || {
            let is_wanted = !unwanted(last.0, &last.1);
            if !is_wanted {
                last = self.get(target);
            }
            is_wanted
        });
        last.1
    }

    /// Interrupts the program, and checks that the test has read all of its remarks.
    pub(super) fn finish(self) {
        self.interrupt.send(()).unwrap();
        assert_eq!(self.thread.join().unwrap(), Exit::SUCCESS);
        assert_eq!(self.remarks.iter().collect::<Vec<_>>(), [""; 0]);
        drop(self.targets);
    }
}

/// The time limit of every wait, which is long enough for a machine under load.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Waits until `holds` returns true; `what` is for the error if that takes too long.
pub(super) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < TIMEOUT, "{what} did not become true in time");
        thread::yield_now();
    }
}

/// Returns the addresses of the members.
fn members(set: &Served) -> Vec<String> {
    set.places().iter().map(|(member, _)| member.to_string()).collect()
}

#[test]
fn pages_describe_a_replica_set() {
    let set = Blueprint::replica_set(3).serve().unwrap();
    let program = Running::start(set.uri());
    assert_eq!(program.get_until("/healthz", 200), "ok\n");
    program.get_until("/healthz?read=secondary", 200);
    let (status, primary) = program.get("/primary");
    assert_eq!(status, 200);
    let (status, json) = program.get("/topology");
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((status, &json["setName"]), (200, &Value::from("rs0")));
    let servers = json["servers"].as_array().unwrap();
    let found = servers.iter().find(|server| server["type"] == "RSPrimary");
    assert_eq!(format!("{}\n", found.unwrap()["address"].as_str().unwrap()), primary);

    let (status, index) = program.get("/");
    assert_eq!(status, 200);
    assert!(index.contains("/member?server="), "{index}");
    for path in ["/metrics", "/topology", "/healthz", "/primary"] {
        assert!(index.contains(path), "{index}");
        assert_eq!(program.ask("HEAD", path), (200, String::new()), "{path}");
        assert_eq!(program.ask("POST", path).0, 405, "{path}");
    }
    program.finish();
}

#[test]
fn invalid_requests_are_refused_with_the_remedy() {
    let set = Blueprint::replica_set(3).serve().unwrap();
    let program = Running::start(set.uri());
    program.get_until("/healthz", 200);
    for (target, status, said) in [
        ("/metric", 404, "404 Not Found"),
        ("/metrics?name=x", 400, "there is no parameter name"),
        ("/healthz?write", 400, "there is no parameter write"),
        ("/healthz?read=all", 400, "all is not a read preference mode"),
        ("/healthz?tags=dc:ny", 400, "need read"),
        ("/healthz?read=nearest&tags=dc", 400, "dc:ny,rack:1"),
        ("/healthz?read=nearest&maxLag=x", 400, "maxLag: it needs a number of seconds"),
        ("/member?is=primary", 400, "the parameter server is missing: HOST:PORT"),
        ("/member?server=a:b:c&is=primary", 400, "write host, host:port or [IPv6]:port"),
        ("/member?server=a:1", 400, "the parameter is is missing: primary, secondary or readable"),
        ("/member?server=a:1&is=leader", 400, "is=leader: there is no such role; use primary, "),
        ("/member?server=a:1&role=primary", 400, "the parameter is is missing"),
        ("/member?server=a:1&is=primary&if=x", 400, "there is no parameter if"),
        ("/member?server=a:1&is=primary&target=x", 404, "no deployment of --targets has this name"),
        ("/member?server=a%3A1&is=primary", 404, "a:1 is no member; name it as the replica set"),
    ] {
        let (found, line) = program.get(target);
        assert_eq!(found, status, "{target}: {line}");
        assert!(line.contains(said) && line.ends_with('\n'), "{target}: {line}");
    }
    program.finish();
}

/// Returns the status and the line of the page `/member` for a member and a role.
fn member(program: &Running, server: &str, role: &str) -> (u16, String) {
    let (status, line) = program.get(&format!("/member?server={server}&is={role}"));
    assert_eq!(line.matches('\n').count(), 1, "{line}");
    (status, line)
}

/// Waits until exactly one member is primary, and returns it.
fn primary_member<'m>(program: &Running, members: &'m [String]) -> &'m str {
    loop {
        let mut found = members.iter().filter(|it| member(program, it, "primary").0 == 200);
        if let (Some(primary), None) = (found.next(), found.next()) {
            return primary;
        }
        thread::yield_now();
    }
}

#[test]
fn each_role_has_the_members_that_a_load_balancer_may_use() {
    let set = Blueprint::replica_set(3).serve().unwrap();
    let program = Running::start(set.uri());
    let members = members(&set);
    let check = |primary: &str| {
        for own in &members {
            let (secondary, is_primary) = (own != primary, own == primary);
            wait_until(own, || (member(&program, own, "secondary").0 == 200) == secondary);
            assert_eq!(member(&program, own, "primary").0 == 200, is_primary, "{own}");
            assert_eq!(member(&program, own, "readable"), (200, format!("{own} is readable\n")));
        }
    };
    let first = primary_member(&program, &members);
    check(first);
    let other = members.iter().find(|own| *own != first).unwrap();
    let said = format!("{other} is not primary, its type is RSSecondary\n");
    assert_eq!(member(&program, other, "primary"), (503, said));

    set.step_down().unwrap();
    wait_until(first, || member(&program, first, "primary").0 != 200);
    let second = primary_member(&program, &members);
    assert_ne!(first, second);
    check(second);

    set.kill(set.primary().unwrap().unwrap()).unwrap();
    let page = format!("/member?server={second}&is=readable");
    let said = program.get_until(&page, 503);
    assert!(said.starts_with(&format!("{second} is not known to be readable: ")), "{said}");
    program.finish();
}

#[test]
fn a_lost_server_has_no_round_trip_times_and_is_counted() {
    let set = Blueprint::replica_set(3).serve().unwrap();
    let program = Running::start(set.uri());
    program.get_until("/healthz?read=secondary", 200);
    let members = members(&set);
    let primary = primary_member(&program, &members);
    let (_, port) = primary.rsplit_once(':').unwrap();
    let of = |metric: &str| {
        let (_, page) = program.get("/metrics");
        let label = format!("server_port=\"{port}\"");
        let mut lines = page.lines().map(str::to_owned);
        lines.find(|line| line.starts_with(metric) && line.contains(&label))
    };
    for metric in ["sdam_rtt_average", "sdam_rtt_minimum", "sdam_rtt_p90"] {
        assert!(of(metric).is_some(), "{metric}");
    }
    assert!(of("sdam_server_losses_total").unwrap().ends_with(" 0"));

    set.kill(set.primary().unwrap().unwrap()).unwrap();
    program.get_until(&format!("/member?server={primary}&is=readable"), 503);
    wait_until("a loss", || {
        of("sdam_server_losses_total").is_some_and(|line| line.ends_with(" 1"))
    });
    for metric in ["sdam_rtt_average", "sdam_rtt_minimum", "sdam_rtt_p90"] {
        assert_eq!(of(metric), None);
    }
    let last_reply = of("sdam_server_last_reply_seconds").unwrap();
    assert!(!last_reply.ends_with(" NaN"), "{last_reply}");
    program.finish();
}

#[test]
fn a_server_outside_a_set_is_readable_and_nothing_else() {
    let server = Blueprint::standalone().serve().unwrap();
    let mongos = Blueprint::sharded(1).serve().unwrap();
    for (uri, found) in [(server.uri(), "Standalone"), (mongos.uri(), "Mongos")] {
        let program = Running::start(uri);
        let own = Options::parse(uri).unwrap().seeds[0].to_string();
        program.get_until(&format!("/member?server={own}&is=readable"), 200);
        let said = |role: &str| (503, format!("{own} is not {role}, its type is {found}\n"));
        for role in ["primary", "secondary"] {
            assert_eq!(member(&program, &own, role), said(role));
        }
        program.finish();
    }
}

#[test]
fn health_checks_ask_with_any_method_and_version() {
    let set = Blueprint::replica_set(3).serve().unwrap();
    let program = Running::start(set.uri());
    program.get_until("/healthz", 200);
    let (_, primary) = program.get("/primary");
    let page = format!("/member?server={}&is=primary", primary.trim_end());
    for method in ["GET", "HEAD", "OPTIONS"] {
        assert_eq!(program.ask(method, &page).0, 200, "{method}");
        // By default, HAProxy sends such a request, which has no header Host.
        let reply = program.send(&format!("{method} {page} HTTP/1.0\r\n\r\n"));
        assert!(reply.starts_with("HTTP/1.0 200 OK\r\n"), "{reply}");
    }
    program.finish();
}

#[test]
fn the_only_deployment_may_have_a_name_that_requests_need_not_give() {
    let server = Blueprint::standalone().serve().unwrap();
    let program = Running::start_with(Arguments {
        target: Target::new(server.uri()),
        name: Some("orders".to_owned()),
        ..Arguments::default()
    });
    program.get_until("/healthz", 200);
    assert_eq!(program.get("/healthz?target=orders").0, 200);
    assert_eq!(program.get("/healthz?target=users").0, 404);
    let (_, page) = program.get("/metrics");
    assert!(page.contains("sdam_up{deployment=\"orders\"} 1\n"), "{page}");
    program.finish();
}

/// The health depends on the operation that the request is about. The reason names every server.
#[test]
fn health_depends_on_the_requested_read_preference() {
    let set = Blueprint::replica_set(3).serve().unwrap();
    let program = Running::start(set.uri());
    program.get_until("/healthz?read=secondary&maxLag=60", 200);
    assert_eq!(program.get("/healthz?read=secondary&tags=dc:ny").0, 503);
    let primary = set.primary().unwrap().unwrap();
    let mut others = (0..3).filter(|member| *member != primary.0);
    set.kill(others.next().unwrap()).unwrap();
    set.kill(primary).unwrap();
    let reason = program.get_until("/healthz", 503);
    assert!(members(&set).iter().all(|member| reason.contains(member)), "{reason}");
    assert_eq!(program.get("/healthz?read=primary").0, 503);
    // The remaining member may not have been checked yet.
    program.get_until("/healthz?read=nearest", 200);
    let (status, reason) = program.get("/primary");
    assert_eq!(status, 503);
    assert!(reason.starts_with("no primary is known: "), "{reason}");
    program.finish();
}

/// Checks that all pages about a direct connection describe only its server, not the server's set.
#[test]
fn a_secondary_and_an_arbiter_behind_a_direct_connection_are_not_writable() {
    let set = with_arbiter().serve().unwrap();
    let primary = set.primary().unwrap().unwrap();
    let secondary = set.places()[usize::from(1 - primary.0)].0.to_string();
    let arbiter = set.places()[2].0.to_string();
    for (member, reads) in [(secondary, 200), (arbiter, 503)] {
        let program = Running::start(&format!("mongodb://{member}/?directConnection=true"));
        let page = program.get_while("/metrics", |_, page| !page.contains("sdam_known 1\n"));
        assert!(page.contains("\nsdam_writable 0\n"), "{page}");
        let (status, said) = program.get("/healthz");
        assert_eq!(status, 503);
        assert!(said.contains("refuses the operation"), "{said}");
        assert_eq!(program.get("/healthz?read=primary").0, 503);
        assert_eq!(program.get("/healthz?read=nearest").0, reads);
        let page = format!("/member?server={member}&is=readable");
        assert_eq!(program.get(&page).0, reads);
        program.finish();
    }
}

#[test]
fn the_metrics_page_has_the_text_format_of_prometheus() {
    let set = Blueprint::replica_set(3).serve().unwrap();
    let program = Running::start(set.uri());
    program.get_until("/healthz", 200);
    set.step_down().unwrap();
    // The page may be requested while an event is still updating the metrics.
    let page = program.get_while("/metrics", |_, page| {
        let last = [
            "sdam_failovers_total 1\n",
            "sdam_failover_duration_seconds_count 1\n",
            "sdam_failover_duration_min_seconds_count 1\n",
            "sdam_writable 1\n",
        ];
        let lags = page.matches("\nsdam_server_lag_seconds{server_address=").count();
        !last.iter().all(|line| page.contains(line)) || lags != 2
    });
    let sum = "# TYPE sdam_time_without_primary_seconds_total counter\n";
    assert!(page.contains(sum), "{page}");
    let value = |name: &str| {
        let line = page.lines().find(|line| line.starts_with(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("no {name}: {page}"))[name.len() + 1..].to_owned()
    };
    assert_eq!(value("sdam_servers"), "3");
    assert!(page.contains("\nsdam_server_last_reply_seconds{server_address="), "{page}");
    assert_eq!(value("sdam_topology_type{type=\"ReplicaSetWithPrimary\"}"), "1");
    assert_eq!(value("sdam_topology_type{type=\"ReplicaSetNoPrimary\"}"), "0");
    assert_ne!(value("sdam_heartbeats_total{mode=\"poll\",result=\"ok\"}"), "0");
    assert!(value("sdam_time_without_primary_seconds_total").parse::<f64>().unwrap() > 0.0);
    program.finish();
    lint(&page);
}

/// Returns the folder `deploy`.
fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy")
}

/// Reads a file of the folder `deploy`.
fn read(path: &str) -> String {
    fs::read_to_string(deploy().join(path)).unwrap()
}

/// Checks a page with the tool that Prometheus provides.
fn lint(page: &str) {
    let checked = Prometheus::promtool(Path::new("."), &["check", "metrics"], page);
    if let Some(output) = or_skip(checked).unwrap() {
        assert!(output.status.success(), "{output:?}: {page}");
    }
}

/// Errors in connection strings are tested in `tests/commands`, for every subcommand.
#[test]
fn an_authority_that_is_missing_and_a_taken_address_end_the_program() {
    let check = |uri: &str, listen: SocketAddr, exit: Exit, said: &str| {
        let arguments = Arguments { target: Target::new(uri), listen, ..Arguments::default() };
        let (output, remarks, end) = capture(|console| {
            block_on(run(&arguments, console.output, console.remarks, pending()))
        });
        assert_eq!((end.unwrap(), &*output), (exit, ""), "{remarks}");
        assert!(remarks.starts_with(said), "{remarks}");
    };
    let free = "127.0.0.1:0".parse().unwrap();
    for scheme in ["mongodb", "mongodb+srv"] {
        let uri = format!("{scheme}://a.example.com/?tlsCAFile=/no/such/file");
        let said = "error: `tlsCAFile` is `/no/such/file`: ";
        check(&uri, free, Exit::CONFIGURATION, said);
    }
    let listener = std::net::TcpListener::bind(free).unwrap();
    let taken = listener.local_addr().unwrap();
    let said = format!("error: --listen {taken}: another program listens there; ");
    check("mongodb://a", taken, Exit::FAILED, &said);
}

/// Returns the label names of each metric.
fn labels(page: &str) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut found = BTreeMap::<_, BTreeSet<_>>::new();
    let samples = page.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    for sample in samples {
        let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
        let names = labels.split(',').filter_map(|label| Some(label.split_once('=')?.0));
        found.entry(name).or_default().extend(names);
    }
    found
}

#[test]
fn each_of_several_deployments_has_its_own_pages() {
    let set = Blueprint::replica_set(3).serve().unwrap();
    let server = Blueprint::standalone().serve().unwrap();
    let closed = Port::reserve().unwrap();
    let dead = closed.address();
    let program = Running::start_many(&format!(
        "live = '{}'\nalone = '{}'\ndead = 'mongodb://{dead}'\n",
        set.uri(),
        server.uri()
    ));
    program.get_until("/healthz?target=live", 200);
    program.get_until("/healthz?target=live&read=secondary", 200);
    assert_eq!(program.get("/healthz?target=dead").0, 503);
    for name in ["alone", "dead"] {
        program.get_until_known(name);
    }
    assert_eq!(program.get("/primary?target=live").0, 200);
    assert_eq!(program.get("/primary?target=alone").0, 503);
    let (_, json) = program.get("/topology?target=live");
    assert!(json.contains("\"setName\":\"rs0\""), "{json}");
    let member = format!("/member?is=readable&server={dead}&target=");
    assert_eq!(program.get(&(member.clone() + "live")).0, 404);
    assert_eq!(program.get(&(member.clone() + "dead")).0, 503);
    let unnamed = program.get(member.strip_suffix("&target=").unwrap());
    assert_eq!(unnamed.0, 400, "{unnamed:?}");
    for path in ["/probe", "/topology", "/healthz", "/primary"] {
        assert_eq!(program.get(path).0, 400, "{path}");
        let unknown = format!("{path}?target={dead}");
        assert_eq!(program.get(&unknown).0, 404, "{path}");
    }
    assert_eq!(program.get("/-/healthy"), (200, "ok\n".to_owned()));
    let (_, page) = program.get("/metrics");
    for sample in [
        "sdam_up{deployment=\"live\"} 1\n",
        "sdam_up{deployment=\"alone\"} 1\n",
        "sdam_up{deployment=\"dead\"} 0\n",
        "sdam_primary_known{deployment=\"live\"} 1\n",
        "sdam_primary_known{deployment=\"alone\"} 0\n",
        "sdam_writable{deployment=\"alone\"} 1\n",
        "sdam_failovers_total{deployment=\"dead\"} 0\n",
    ] {
        assert!(page.contains(sample), "no {sample}{page}");
    }
    lint(&page);
    program.finish();
}

#[test]
fn probes_of_dead_and_live_deployments_have_the_same_labels() {
    let set = Blueprint::replica_set(3).serve().unwrap();
    // This listener accepts connections but never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let program = Running::start_many(&format!(
        "live = '{}'\ndead = 'mongodb://{}/?connectTimeoutMS=100'\n",
        set.uri(),
        silent.local_addr().unwrap()
    ));
    let [live, dead] = ["live", "dead"].map(|name| program.get_until_known(name));
    for (name, alive) in [("sdam_up", 1), ("sdam_primary_known", 1), ("sdam_writable", 1)] {
        let sample =
            |name, deployment, value| format!("\n{name}{{deployment=\"{deployment}\"}} {value}\n");
        assert!(live.contains(&sample(name, "live", alive)), "{live}");
        assert!(dead.contains(&sample(name, "dead", 0)), "{dead}");
    }
    let live = labels(&live);
    for (name, labels) in labels(&dead) {
        assert_eq!(live.get(name), Some(&labels), "{name}");
    }
    program.finish();
}

#[test]
fn a_server_that_has_left_has_no_metrics() {
    let set = Blueprint::replica_set(3).serve().unwrap();
    let program = Running::start(set.uri());
    program.get_until("/healthz?read=secondary", 200);
    let primary = set.primary().unwrap().unwrap();
    let leaver = (0..3).rev().find(|member| *member != primary.0).unwrap();
    let leaver = set.places()[usize::from(leaver)].0.clone();
    let series = format!("server_port=\"{}\"", leaver.port().unwrap());
    let is_shown = || program.get("/metrics").1.contains(&series);
    // One secondary is readable before the other one has been checked.
    wait_until(&series, is_shown);
    set.reconfig(move |config| config.members.retain(|it| it.address != leaver)).unwrap();
    wait_until(&series, || !is_shown());
    program.finish();
}
