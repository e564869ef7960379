//! Tests of parsing and formatting scenarios, and of running them.

use sdam_core::{
    address::ServerAddress,
    error::Stage,
    options::{ProxyOptions, TlsOptions},
};
use sdam_transport::layers::Layers;

use super::*;
use crate::{Blueprint, Target};

/// Every kind of step, with every kind of argument, as it is written.
const EVERY_STEP: &str = "\
stepdown 2.25
stepup secondary
replfreeze 1 0.000000001
kill primary
shutdown 0
restart 0
freeze 2
thaw 2
partition 0,primary 2
isolate 1
cutoff 1
heal
splitbrain
setconfig rs a:27017 b:27017;arbiter=true;priority=0 c:27017;priority=0;hidden=true;\
tags=dc:ny,rack:1 d:27017;priority=0;votes=false;delay=1.5 e:27017;priority=2.5
reconfig 1 priority=0.25 votes=false hidden=true delay=3600 tags=dc:ny,rack:1 tags=
add 3
remove 1
maintenance 1 on
maintenance 1 off
horizon close
horizon error
failpoint 0 off
failpoint primary commands=hello,isMaster times=2 code=91 close block=250 app=app labels= \
writeconcern=64 reply=no-ok
failpoint 0 commands=ping skip=1 labels=One,Two
exhaust 1 off
exhaust 1 on
flood 0 0.00025
flood 0 off
lag 1 90
upgrade 1 6.0.5
impostor 1 other-set
impostor 1 off
net refuse 1
net refuse 1 off
net blackhole secondary
net blackhole 0 off
net reset primary
net reset_after 0 20
net reset_after 0 off
net dns 1.5
net dns nxdomain
net dns off
net dns a silent
net dns a servfail
net dns a flap=0.5
net srv _mongodb._tcp.cluster.sim.test 60 a:27017 b:27017
net srv _mongodb._tcp.cluster.sim.test 0
net tls 0 stall
net tls 0 cut
net tls primary plain
net tls 0 off
net certificate 0 expire
net certificate 0 renew
net certificate 0 name=b
net certificate 0 issuer=Mallory
net proxy proxy:27017 down
net proxy proxy:27017 stall
net proxy proxy:27017 reject
net proxy proxy:27017 off
net proxy proxy:27017 reset
net latency 0.0001 0.0002
net latency 0.04 0.04 chunked
net heal";

#[test]
fn scenarios_that_are_read_are_written_back() {
    let times = (0_u32..).map(|step| Duration::from_micros(333_333) * step);
    let lines = times.zip(EVERY_STEP.lines());
    let mut text = String::new();
    for (at, step) in lines {
        text.extend([&*seconds(at), "s ", step, "\n"]);
    }
    assert_eq!(text.parse::<Scenario>().unwrap().to_string(), text);
    for line in EVERY_STEP.lines() {
        assert_eq!(line.parse::<Step>().unwrap().to_string(), line);
    }
}

#[test]
fn every_verb_of_the_syntax_is_covered() {
    let verbs = Action::SYNTAX.lines().chain(NetFault::SYNTAX.lines());
    for line in verbs.filter(|line| line.starts_with(|first: char| first.is_lowercase())) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let verb = if words[0] == "net" { words[..2].join(" ") } else { words[0].to_owned() };
        let is_verb = |step: &str| format!("{step} ").starts_with(&format!("{verb} "));
        assert!(EVERY_STEP.lines().any(is_verb), "{verb}");
    }
}

#[test]
fn comments_blank_lines_and_milliseconds_are_parsed() {
    let text = "# first\n\n 0s stepdown\n 250ms  kill 0 # dies\n\t1.5s heal\n";
    let scenario: Scenario = text.parse().unwrap();
    let expected = [
        (Duration::ZERO, Action::StepDown { period: Duration::from_secs(60) }.into()),
        (Duration::from_millis(250), Action::Kill(Target::from(0)).into()),
        (Duration::from_millis(1500), Action::Heal.into()),
    ];
    assert_eq!(scenario, expected.into_iter().collect());
    assert_eq!(scenario.duration(), Duration::from_millis(1500));
}

#[test]
fn errors_name_the_line_the_wrong_or_missing_word_and_the_syntax() {
    let line = "write a line as `AT VERB ...`, such as `1.5s kill primary`";
    for (text, number, reason, remedy) in [
        ("1s heal\nkill 0", 2, "`kill` is not a time", line),
        ("\n1s", 2, "the step is missing", line),
        ("-1s heal", 1, "`-1s` is not a time", line),
        ("1s explode", 1, "`explode` is not an action", "the verbs are net, stepdown, stepup"),
        ("1s kill", 1, "MEMBER is missing", "write it as `kill MEMBER`"),
        ("1s kill x", 1, "`x` is not MEMBER", "write it as `kill MEMBER`"),
        ("1s kill 1 2", 1, "`2` is unexpected after a complete action", "write it as `kill"),
        ("1s lag 0 x", 1, "`x` is not SECONDS", "write it as `lag MEMBER SECONDS`"),
        ("1s lag 0 -1", 1, "`-1` is not SECONDS", "write it as `lag MEMBER SECONDS`"),
        ("1s flood 0 0", 1, "`0` is not SECONDS", "write it as `flood MEMBER SECONDS|off`"),
        ("1s failpoint 0 code=91", 1, "commands=NAME,... is missing", "write it as `failpoint"),
        ("1s reconfig 0 x=1", 1, "`x=1` is not a setting of a member", "write it as `reconfig"),
        ("1s net refuse", 1, "`net refuse` lacks its arguments", "write it as `net refuse MEMBER"),
        ("1s net dns a x", 1, "`x` is not FAULT or off", "write it as `net dns [NAME] FAULT|off`"),
        ("1s net certificate 0 x", 1, "`x` is not CHANGE", "write it as `net certificate MEMBER"),
        ("1s net tls 0 x", 1, "`x` is not stall, cut, plain or off", "write it as `net tls"),
        ("1s net proxy p x", 1, "`x` is not FAULT, reset or off", "write it as `net proxy HOST"),
        (
            "1s net flood 1",
            1,
            "`flood` is not a fault of the network",
            "the verbs are refuse, blackhole, reset, reset_after, dns, srv, tls, certificate, \
             proxy, latency, heal",
        ),
    ] {
        let error = text.parse::<Scenario>().unwrap_err().to_string();
        assert!(error.starts_with(&format!("line {number}: {reason}; {remedy}")), "{error}");
    }
}

#[test]
fn steps_run_in_order_of_time_and_impossible_steps_are_reported() {
    let sim = Sim::new(5, &Blueprint::replica_set(3));
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
    let sim = Sim::new(5, &Blueprint::replica_set(1));
    sim.tls().require();
    let proxy = ServerAddress::new("proxy", 1080);
    sim.proxies().add(proxy.clone(), None);
    let backend = sim.runtime().backend;
    let mut layers = Layers::default();
    layers.tls = Some(backend.tls.unwrap().tls(&TlsOptions::default()).unwrap());
    layers.proxy = Some(ProxyOptions::new("proxy", 1080));
    let transport = backend.transport.with_layers(layers).unwrap();
    let (host, start) = (ServerAddress::new("a", 27017), sim.now());
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
