//! Tests of parsing and formatting scenarios, and of running them.

use sdam_core::{
    address::ServerAddress,
    error::Stage,
    options::{ProxyOptions, TlsOptions},
};
use sdam_transport::layers::Layers;

use super::*;
use crate::{
    Blueprint, MemberId,
    action::{BadReply, Edit, FailCommand, HorizonPolicy, Impostor, Mode, Target},
    config::{MemberConfig, SetConfig},
    runtime::{DnsFault, Latency, ProxyFault, TlsFault},
    version::ServerVersion,
};

fn member(number: u16) -> Target {
    Target::from(number)
}

fn address(host: &str) -> ServerAddress {
    ServerAddress::new(host, 27017)
}

/// Returns every kind of step, with every kind of argument.
fn every_step() -> Vec<Step> {
    let mut config = SetConfig::new("rs", [address("a")]);
    config.members.extend([
        MemberConfig::new(address("b")).arbiter(),
        MemberConfig::new(address("c")).hidden().tag("dc", "ny").tag("rack", "1"),
        MemberConfig::new(address("d")).delayed(Duration::from_millis(1500)).non_voting(),
        MemberConfig::new(address("e")).priority(2.5),
    ]);
    let actions = [
        Action::StepDown { period: Duration::from_millis(2250) },
        Action::StepUp(Target::Secondary),
        Action::ReplSetFreeze(member(1), Duration::from_nanos(1)),
        Action::Kill(Target::Primary),
        Action::Shutdown(member(0)),
        Action::Restart(member(0)),
        Action::Freeze(member(2)),
        Action::Thaw(member(2)),
        Action::Partition(vec![member(0), Target::Primary], vec![member(2)]),
        Action::Isolate(member(1)),
        Action::CutOff(member(1)),
        Action::Heal,
        Action::SplitBrain,
        Action::Reconfig(config),
        Action::Edit(
            member(1),
            vec![
                Edit::Priority(0.25),
                Edit::Votes(false),
                Edit::Hidden(true),
                Edit::Delay(Duration::from_secs(3600)),
                Edit::Tags(vec![("dc".into(), "ny".into()), ("rack".into(), "1".into())]),
                Edit::Tags(Vec::new()),
            ],
        ),
        Action::Add(MemberId(3)),
        Action::Remove(member(1)),
        Action::Maintenance(member(1), true),
        Action::Maintenance(member(1), false),
        Action::FailPoint(member(0), None),
        Action::FailPoint(
            Target::Primary,
            Some(FailCommand {
                mode: Mode::Times(2),
                commands: vec!["hello".into(), "isMaster".into()],
                app_name: Some("app".into()),
                block: Some(Duration::from_millis(250)),
                close_connection: true,
                error_code: Some(91),
                error_labels: Some(Vec::new()),
                write_concern_error: Some(64),
                bad_reply: Some(BadReply::NoOk),
                ..FailCommand::default()
            }),
        ),
        Action::FailPoint(
            member(0),
            Some(FailCommand {
                mode: Mode::Skip(1),
                commands: vec!["ping".into()],
                error_labels: Some(vec!["One".into(), "Two".into()]),
                ..FailCommand::default()
            }),
        ),
        Action::Lag(member(1), Duration::from_secs(90)),
        Action::Upgrade(member(1), ServerVersion::V6_0.patch(5)),
        Action::Impostor(member(1), Some(Impostor::OtherSet)),
        Action::Impostor(member(1), None),
    ];
    actions.into_iter().chain(replies()).map(Step::from).chain(every_fault()).collect()
}

/// Returns actions that affect how members reply to awaitable hellos.
fn replies() -> [Action; 6] {
    [
        Action::Horizon(HorizonPolicy::Close),
        Action::Horizon(HorizonPolicy::Error),
        Action::Exhaust(member(1), false),
        Action::Exhaust(member(1), true),
        Action::Flood(member(0), Some(Duration::from_micros(250))),
        Action::Flood(member(0), None),
    ]
}

fn every_fault() -> impl Iterator<Item = Step> {
    let faults = [
        NetFault::Refuse(member(1), true),
        NetFault::Refuse(member(1), false),
        NetFault::Blackhole(Target::Secondary, true),
        NetFault::Blackhole(member(0), false),
        NetFault::Reset(Target::Primary),
        NetFault::ResetAfter(member(0), Some(20)),
        NetFault::ResetAfter(member(0), None),
        NetFault::Dns(None, Some(DnsFault::Slow(Duration::from_millis(1500)))),
        NetFault::Dns(None, Some(DnsFault::NoSuchName)),
        NetFault::Dns(None, None),
        NetFault::Dns(Some("a".into()), Some(DnsFault::Silence)),
        NetFault::Dns(Some("a".into()), Some(DnsFault::ServerFailure)),
        NetFault::Dns(Some("a".into()), Some(DnsFault::Flapping(Duration::from_millis(500)))),
        NetFault::Srv {
            name: "_mongodb._tcp.cluster.sim.test".into(),
            ttl: Duration::from_secs(60),
            hosts: vec![address("a"), address("b")],
        },
        NetFault::Srv {
            name: "_mongodb._tcp.cluster.sim.test".into(),
            ttl: Duration::ZERO,
            hosts: Vec::new(),
        },
        NetFault::Tls(member(0), Some(TlsFault::Stall)),
        NetFault::Tls(member(0), Some(TlsFault::Cut)),
        NetFault::Tls(Target::Primary, Some(TlsFault::PlainText)),
        NetFault::Tls(member(0), None),
        NetFault::Certificate(member(0), CertificateChange::Expire),
        NetFault::Certificate(member(0), CertificateChange::Renew),
        NetFault::Certificate(member(0), CertificateChange::Name("b".into())),
        NetFault::Certificate(member(0), CertificateChange::Issuer("Mallory".into())),
        NetFault::Proxy(address("proxy"), Some(ProxyFault::Down)),
        NetFault::Proxy(address("proxy"), Some(ProxyFault::Stall)),
        NetFault::Proxy(address("proxy"), Some(ProxyFault::Reject)),
        NetFault::Proxy(address("proxy"), None),
        NetFault::ResetProxy(address("proxy")),
        NetFault::Latency(Latency::LAN),
        NetFault::Latency(Latency::WAN),
        NetFault::Heal,
    ];
    faults.into_iter().map(Step::from)
}

#[test]
fn written_scenarios_are_read_back() {
    let times = (0_u32..).map(|step| Duration::from_micros(333_333) * step);
    let scenario: Scenario = times.zip(every_step()).collect();
    let text = scenario.to_string();
    assert_eq!(text.parse(), Ok(scenario), "{text}");
    for (line, step) in text.lines().zip(every_step()) {
        let (_, step_text) = line.split_once(' ').unwrap();
        assert_eq!(step_text.parse(), Ok(step), "{line}");
    }
}

#[test]
fn every_verb_of_the_syntax_is_covered() {
    let written: Vec<String> = every_step().iter().map(Step::to_string).collect();
    let verbs = Action::SYNTAX.lines().chain(NetFault::SYNTAX.lines());
    for line in verbs.filter(|line| line.starts_with(|first: char| first.is_lowercase())) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let verb = if words[0] == "net" { words[..2].join(" ") } else { words[0].to_owned() };
        let is_verb = |text: &String| format!("{text} ").starts_with(&format!("{verb} "));
        assert!(written.iter().any(is_verb), "{verb}");
    }
}

#[test]
fn comments_blank_lines_and_milliseconds_are_parsed() {
    let text = "# first\n\n 0s stepdown\n 250ms  kill 0 # dies\n\t1.5s heal\n";
    let scenario: Scenario = text.parse().unwrap();
    let expected = [
        (Duration::ZERO, Action::StepDown { period: Duration::from_secs(60) }.into()),
        (Duration::from_millis(250), Action::Kill(member(0)).into()),
        (Duration::from_millis(1500), Action::Heal.into()),
    ];
    assert_eq!(scenario, expected.into_iter().collect());
    assert_eq!(scenario.duration(), Duration::from_millis(1500));
}

#[test]
fn errors_name_the_line_and_the_syntax() {
    for (text, message) in [
        (
            "1s heal\nkill 0",
            "line 2: `kill` is not a time; write a line as `AT VERB ...`, such as `1.5s kill primary`",
        ),
        (
            "\n1s",
            "line 2: the step is missing; write a line as `AT VERB ...`, such as `1.5s kill primary`",
        ),
        (
            "-1s heal",
            "line 1: `-1s` is not a time; write a line as `AT VERB ...`, such as `1.5s kill primary`",
        ),
        ("1s kill", "line 1: MEMBER is missing; write it as `kill MEMBER`"),
        ("1s lag 0 x", "line 1: `x` is not SECONDS; write it as `lag MEMBER SECONDS`"),
        (
            "1s net refuse",
            "line 1: `net refuse` lacks its arguments; write it as `net refuse MEMBER [off]`",
        ),
        (
            "1s net dns a x",
            "line 1: `x` is not FAULT or off; write it as `net dns [NAME] FAULT|off`",
        ),
        (
            "1s net certificate 0 burn",
            "line 1: `burn` is not CHANGE; write it as `net certificate MEMBER CHANGE`",
        ),
        (
            "1s net tls 0 burn",
            "line 1: `burn` is not stall, cut, plain or off; write it as `net tls MEMBER \
             stall|cut|plain|off`",
        ),
        (
            "1s net proxy p burn",
            "line 1: `burn` is not FAULT, reset or off; write it as `net proxy HOST FAULT|reset|off`",
        ),
        (
            "1s net flood 1",
            "line 1: `flood` is not a fault of the network; the verbs are refuse, blackhole, reset, \
             reset_after, dns, srv, tls, certificate, proxy, latency, heal",
        ),
    ] {
        let error = text.parse::<Scenario>().unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    let error = "1s explode".parse::<Scenario>().unwrap_err().to_string();
    assert!(
        error
            .starts_with("line 1: `explode` is not an action; the verbs are net, stepdown, stepup")
    );
}

#[test]
fn steps_run_in_order_of_time_and_impossible_steps_are_reported() {
    let hosts = ["a", "b", "c"].map(address);
    let sim = Sim::new(5, &Blueprint::replica_set(SetConfig::new("rs", hosts)));
    // Once two members have been killed, the set cannot elect a primary. There is no member 9.
    let text =
        "3s kill primary\n1s kill 1\n1s kill 2\n2s net refuse 9\n4s kill primary\n5s net heal\n";
    let scenario: Scenario = text.parse().unwrap();
    let start = sim.now();
    let failed = sim.block_on(scenario.play(&sim));
    assert_eq!(sim.now().since(start), Duration::from_secs(5));
    let reported: Vec<String> = failed.iter().map(FailedStep::to_string).collect();
    assert_eq!(
        reported,
        [
            "2s net refuse 9: member 9 does not exist now",
            "4s kill primary: the primary does not exist now",
        ]
    );
    assert!(sim.status().members.iter().all(|member| !member.running));
}

#[test]
fn faults_of_names_certificates_proxies_and_servers_are_applied_and_healed() {
    let scenario: Scenario = "
        1s  net proxy proxy:1080 down
        2s  net proxy proxy:1080 off
        3s  net dns proxy silent
        4s  net dns proxy off
        5s  net tls primary cut
        6s  net heal
        7s  net certificate primary expire
        8s  net certificate primary name=b
        9s  net certificate primary renew
        10s net refuse primary
        11s net heal
    "
    .parse()
    .unwrap();
    let config = SetConfig::new("rs", [address("a")]);
    let sim = Sim::new(5, &Blueprint::replica_set(config));
    sim.tls().require();
    let proxy = ServerAddress::new("proxy", 1080);
    sim.proxies().add(proxy.clone(), None);
    let backend = sim.runtime().backend;
    let mut layers = Layers::default();
    layers.tls = Some(backend.tls.unwrap().tls(&TlsOptions::default()).unwrap());
    layers.proxy = Some(ProxyOptions::new("proxy", 1080));
    let transport = backend.transport.with_layers(layers).unwrap();
    let (host, start) = (address("a"), sim.now());
    let program = async {
        let mut stages = Vec::new();
        for second in 0..12 {
            let now = start + Duration::from_millis(1000 * second + 500);
            backend.clock.sleep_until(now).await;
            let deadline = Some(now + Duration::from_millis(250));
            let connected = transport.connect(&host, deadline).await;
            stages.push(connected.err().map(|error| error.stage()));
        }
        stages
    };
    let (failed, stages) = sim.block_on(async { futures::join!(scenario.play(&sim), program) });
    assert!(failed.is_empty(), "{failed:?}");
    let (proxy, tls) = (Some(Stage::Proxy), Some(Stage::Tls));
    let expected = [None, proxy, None, proxy, None, tls, None, tls, tls, None, proxy, None];
    assert_eq!(stages, expected);
}
