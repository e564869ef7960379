//! Tests that the requests of a client without background tasks end, whatever the servers answer.

use std::{collections::BTreeMap, string::ToString};

use proptest::{collection::vec as list, prelude::*};

use super::world::*;
use crate::rng::Rng;

/// The outcome of a server's check, and its duration in milliseconds.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "few values exist")]
enum Answer {
    Is(u64, Hello),
    /// A network error.
    Down(u64),
    /// A command error, such as `ok: 0`.
    Refuses(u64),
}

/// A deployment in inline mode, and the current answers of its servers.
struct Client {
    world: World,
    answers: BTreeMap<ServerAddress, Answer>,
    /// The answers to the next checks, whichever servers are checked, in reverse order.
    next: Vec<Answer>,
    /// The server type that operations require.
    wanted: ServerType,
    /// The idle time of connections.
    idle: Option<Duration>,
    /// The outcomes of the next probes, in reverse order; all probes after these succeed.
    probes: Vec<bool>,
    /// The duration of a probe that gets no answer.
    patience: Duration,
    /// The checked servers, waits and probes.
    log: Vec<String>,
}

fn primary(hosts: &[&str]) -> Answer {
    Answer::Is(0, Hello { hosts: addresses(hosts), ..elected(1) })
}

impl Client {
    /// Creates a client with the given seeds and the options that `change` sets, at 0 ms.
    fn new(seeds: &[&str], seed: u64, change: impl FnOnce(&mut Options)) -> Self {
        let mut options = options(seeds);
        change(&mut options);
        let mut world = World::new(&options);
        let config = Arc::clone(&world.deployment.config);
        world.deployment =
            Deployment::new(options.clone(), config, Rng::new(seed)).with_scans(&options);
        world.now = Instant::EPOCH;
        let _ = world.handle(Input::Open);
        Self {
            world,
            answers: BTreeMap::new(),
            next: Vec::new(),
            wanted: ServerType::RsPrimary,
            idle: None,
            probes: Vec::new(),
            patience: Duration::ZERO,
            log: Vec::new(),
        }
    }

    fn answer(&mut self, name: &str, answer: Answer) {
        self.answers.insert(address(name), answer);
    }

    fn handle(&mut self, input: Input) {
        let _ = self.world.handle(input);
        for output in &self.world.last {
            if let Output::Emit(EventKind::ServerHeartbeatStarted(heartbeat)) = output {
                self.log.push(heartbeat.address.host().into());
                if let Some(answer) = self.next.pop() {
                    self.answers.insert(heartbeat.address.clone(), answer);
                }
            }
        }
    }

    /// Makes a request and returns its outcome.
    fn run(&mut self, request: ScanRequest) -> Result<Option<ServerId>, ScanFailure> {
        self.handle(Input::Scan(request));
        for _ in 0..1_000 {
            let input = match self.last() {
                Some(Output::Finish(outcome)) => return *outcome,
                Some(Output::Choose) => {
                    let mut servers = self.world.topology().servers().iter();
                    let suitable = servers.find(|server| server.server_type == self.wanted);
                    Input::Chosen { server: suitable.map(|server| server.id), idle: self.idle }
                }
                Some(&Output::Probe { server }) => self.probe(server),
                Some(&(Output::Connect { conn, .. } | Output::Send { conn, .. })) => {
                    self.reply(conn)
                }
                _ => {
                    let until = self.world.deployment.deadline_of(Timer::Scan, false).unwrap();
                    if until > self.world.now {
                        self.log.push(format!("sleep {}", millis(until)));
                        self.world.now = until;
                    }
                    Input::Due { timer: Timer::Scan, wanted: false }
                }
            };
            self.handle(input);
        }
        panic!("no end: {:?}", self.log);
    }

    /// Returns the last output except `Wake`, which has no effect here: the only timer is that of
    /// the request.
    fn last(&self) -> Option<&Output> {
        self.world.last.iter().rfind(|output| !matches!(output, Output::Wake { .. }))
    }

    fn probe(&mut self, server: ServerId) -> Input {
        let alive = self.probes.pop().unwrap_or(true);
        let verdict = if alive { "alive" } else { "dead" };
        let name = self.world.topology().server_by_id(server).unwrap().address.host().to_string();
        self.log.push(format!("probe {name} {verdict}"));
        if alive {
            return Input::Probed { server, outcome: Ok(()) };
        }
        self.world.now = self.world.now + self.patience;
        Input::Probed { server, outcome: Err(Error::network(Stage::Operation, "silence")) }
    }

    /// Returns the answer to the last request on the connection of a check.
    fn reply(&mut self, conn: ConnId) -> Input {
        let connects = matches!(self.last(), Some(Output::Connect { .. }));
        let server = self.world.topology().server_by_id(conn.server).unwrap();
        let answer = self.answers.get(&server.address).cloned().unwrap_or(Answer::Down(0));
        let sent = self.world.now;
        let mut after = |millis| {
            self.world.now = sent + Duration::from_millis(millis);
            self.world.now
        };
        let (at, reply) = match answer {
            Answer::Down(took) => {
                let error = Error::network(Stage::Connect, "refused");
                return Input::Failed { conn, at: after(took), error };
            }
            _ if connects => return Input::Connected { conn },
            Answer::Is(took, hello) => (after(took), Ok(hello)),
            Answer::Refuses(took) => {
                (after(took), Err(Error::new(ErrorKind::Command, Stage::Hello, "no")))
            }
        };
        Input::Reply { conn, sent, at, reply: reply.into(), more_to_come: false }
    }

    /// Selects a server within `timeout` milliseconds. Returns the new lines of the log and the
    /// outcome.
    fn select(&mut self, timeout: u64) -> String {
        let first = self.log.len();
        let timeout = Duration::from_millis(timeout);
        let outcome = match self.run(ScanRequest::Select { timeout }) {
            Ok(server) => {
                let server = self.world.topology().server_by_id(server.unwrap());
                format!("selected {}", server.unwrap().address.host())
            }
            Err(failure) => format!("{failure:?}"),
        };
        let mut lines = self.log.split_off(first);
        lines.push(outcome);
        lines.join(", ")
    }

    /// Selects a server at `at` milliseconds, like [`select`](Self::select).
    fn select_at(&mut self, at: u64, timeout: u64) -> String {
        self.world.wait_until(at);
        self.select(timeout)
    }

    /// Runs a scan and returns the names of the checked servers.
    fn scan(&mut self) -> String {
        let first = self.log.len();
        assert_eq!(self.run(ScanRequest::Scan), Ok(None));
        let mut checks = self.log.split_off(first);
        checks.retain(|line| !line.starts_with("sleep"));
        checks.join(" ")
    }
}

fn millis(at: Instant) -> u128 {
    at.since(Instant::EPOCH).as_millis()
}

fn of_set(options: &mut Options) {
    options.replica_set = Some("rs".into());
}

/// Returns a client with the single seed `p`, a primary that takes 10 ms to answer.
fn client(change: impl FnOnce(&mut Options)) -> Client {
    let mut client = Client::new(&["p"], 1, |options| {
        of_set(options);
        change(options);
    });
    client.answer("p", Answer::Is(10, Hello { hosts: addresses(&["p"]), ..elected(1) }));
    client
}

#[test]
fn h_3_a_displaced_primary_is_checked_again_in_the_same_scan() {
    // The newer primary resets the older one to "infinity ago".
    let orders: Vec<_> = (0..20)
        .map(|seed| {
            let mut client = Client::new(&["a", "b"], seed, of_set);
            client.answer("a", Answer::Is(0, elected(1)));
            client.answer("b", Answer::Is(0, elected(0)));
            client.scan()
        })
        .collect();
    for order in &orders {
        assert!(["b a b", "a b"].contains(&&**order), "{orders:?}");
    }
    assert!(orders.iter().any(|order| *order != orders[0]), "{orders:?}");
}

#[test]
fn h_14_a_selector_that_rejects_the_load_balancer_is_not_asked_again() {
    // Another scan would not change the selector's answer.
    let mut client = Client::new(&["p"], 1, |options| options.load_balanced = true);
    client.wanted = ServerType::Mongos;
    assert_eq!(client.select(30_000), "TriedOnce");
}

#[test]
fn h_11_l_65_l_66_try_once_scans_exactly_once_after_a_failure() {
    let mut client = client(|_| ());
    assert_eq!(client.select(30_000), "p, selected p");
    // The topology is fresh, but no secondary is known, so one scan precedes the failure.
    client.wanted = ServerType::RsSecondary;
    assert_eq!(client.select_at(5_000, 30_000), "p, TriedOnce");
    // The failure has made the topology stale, so the next selection begins with a scan, and scans
    // only once.
    assert_eq!(client.select_at(9_000, 30_000), "p, TriedOnce");
}

#[test]
fn b_19_a_timeout_of_zero_still_permits_a_first_scan() {
    let mut client = client(|options| options.server_selection_try_once = Some(false));
    assert_eq!(client.select(0), "p, selected p");
    client.answer("p", Answer::Is(10, hello(ServerType::RsSecondary)));
    client.wanted = ServerType::Mongos;
    assert_eq!(client.select_at(60_100, 0), "p, Timeout");
    assert_eq!(client.select_at(60_200, 0), "Timeout");
}

#[test]
fn a_probe_that_fails_is_followed_by_a_scan_until_the_deadline_has_passed() {
    // The interval of probes is configurable (B-21).
    for (patience, expected) in
        [(1_000, "probe p dead, p, selected p"), (1_001, "probe p dead, Timeout")]
    {
        let mut client = client(|options| {
            options.server_selection_try_once = Some(false);
            options.socket_check_interval = Duration::from_secs(1);
        });
        client.select(30_000);
        client.idle = Some(Duration::from_secs(1));
        client.probes = [false].into();
        client.patience = Duration::from_millis(patience);
        assert_eq!(client.select_at(9_000, 1_000), expected);
    }
}

#[test]
fn servers_that_add_and_remove_each_other_do_not_make_a_scan_endless() {
    let mut client = Client::new(&["a"], 1, of_set);
    client.answer("a", primary(&["b"]));
    client.answer("b", primary(&["a"]));
    assert_eq!(client.scan(), "a b a b");
}

#[test]
fn a_server_that_lists_ever_more_members_does_not_make_a_scan_endless() {
    let mut client = Client::new(&["h0"], 1, |options| {
        of_set(options);
        options.max_servers = 10;
    });
    for number in 0..100 {
        let next = format!("h{}", number + 1);
        client.answer(&format!("h{number}"), primary(&[&next]));
    }
    assert_eq!(client.scan().split(' ').count(), 10);
}

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn any_hello() -> impl Strategy<Value = Hello> {
    let of_answers = |own: &&ServerType| own.is_available() && **own != ServerType::LoadBalancer;
    let types: Vec<_> = ServerType::ALL.iter().filter(of_answers).copied().collect();
    let types = prop_oneof![6 => prop::sample::select(types), 1 => Just(ServerType::RsPrimary)];
    let names = || prop::sample::select(NAMES.as_slice());
    let name = || prop::option::of(names().prop_map(address));
    let known = prop::option::of((0_u8..2, 0_i64..4));
    (types, list(names(), 0..4), name(), name(), 0_u8..4, known).prop_map(
        |(server_type, mut hosts, me, primary, election, known)| {
            hosts.sort_unstable();
            hosts.dedup();
            Hello {
                me,
                primary,
                hosts: addresses(&hosts),
                election: elected(election).election,
                topology_version: known.map(|(process, counter)| version(process, counter)),
                ..hello(server_type)
            }
        },
    )
}

fn any_answer() -> impl Strategy<Value = Answer> {
    prop_oneof![
        6 => (0_u64..50, any_hello()).prop_map(|(took, hello)| Answer::Is(took, hello)),
        2 => (0_u64..50).prop_map(Answer::Down),
        1 => (0_u64..50).prop_map(Answer::Refuses),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_scan_ends_and_checks_no_server_more_than_twice(
        seed: u64,
        replica_set: bool,
        answers in list(any_answer(), 1..60),
    ) {
        let mut client = Client::new(&["a", "b", "c"], seed, |options| {
            options.replica_set = replica_set.then(|| "rs".into());
        });
        // Each check takes the next outcome. Once all are used up, the server's last outcome is
        // repeated.
        client.next = answers;
        for _ in 0..4 {
            let started = client.world.now;
            let checked = client.scan();
            for name in NAMES {
                let count = checked.split(' ').filter(|own| *own == name).count();
                prop_assert!(count <= 2, "{checked}");
            }
            // Every server that is still in the topology was checked, or is in its cooldown.
            for server in client.world.topology().servers() {
                let failed = server.last_update_time.filter(|_| !server.server_type.is_available());
                prop_assert!(
                    checked.split(' ').any(|own| own == server.address.host())
                        || failed.is_some_and(|at| at + Duration::from_secs(5) > started),
                    "{server:?} was left out"
                );
            }
            client.world.now = client.world.now + Duration::from_millis(1_500);
        }
    }

    #[test]
    fn a_selection_ends_in_bounded_time(
        seed: u64,
        try_once: bool,
        timeout in 0_u64..5_000,
        answers in list(any_answer(), 1..60),
        probes in list(any::<bool>(), 0..4),
    ) {
        let mut client = Client::new(&["a", "b", "c"], seed, |options| {
            options.server_selection_try_once = Some(try_once);
        });
        client.idle = Some(Duration::from_secs(9));
        client.next = answers;
        client.probes = probes;
        let timeout = Duration::from_millis(timeout);
        let _ = client.run(ScanRequest::Select { timeout });
        let count = |what| client.log.iter().filter(|line| line.starts_with(what)).count();
        prop_assert!(count("probe") <= 1, "L-67, H-12: {:?}", client.log);
        let checks = client.log.len() - count("probe") - count("sleep");
        if try_once {
            prop_assert!(checks <= 2 * 2 * NAMES.len(), "L-66: {:?}", client.log);
        } else {
            // Every scan begins by the deadline. Each check takes less than 50 ms, and begins
            // 500 ms after the server's previous check.
            let bound = timeout + 2 * NAMES.len() as u32 * Duration::from_millis(550);
            prop_assert!(client.world.now.since(Instant::EPOCH) <= bound, "L-67: {:?}", client.log);
        }
    }
}
