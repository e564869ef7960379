//! The faults of a plan: faults of the deployment, and faults in look-ups, TLS and proxies.

use std::time::Duration;

use sdam_core::{address::ServerAddress, rng::Rng};
use sdam_sim::{
    Action, MemberId,
    action::{BadReply, Edit, FailCommand, HorizonPolicy, Impostor, Mode, Target},
    runtime::{DnsFault, Latency, ProxyFault, TlsFault},
    scenario::{CertificateChange, NetFault, Scenario, Step},
};

use super::{
    Access, COMMANDS, Deployed, Kind, MAX_TTL, SRV_NAME, Shape, TOO_OLD, VERSIONS, mongos, pick,
    proxy,
};

/// Draws the deployment's faults from `rng`, and faults on the client's route from `access_rng`.
pub(super) fn scenario(
    kind: Kind,
    deployed: &Deployed,
    access: Access,
    has_set_name: bool,
    rng: &mut Rng,
    access_rng: &mut Rng,
) -> Scenario {
    let left_out = left_out(access_rng);
    let seconds = match rng.below(10) {
        0 => 120,
        1..4 => 15,
        _ => 40,
    };
    let faults = match kind {
        Kind::Flapping => 15 + rng.below(25),
        _ => 1 + rng.below(10),
    };
    let span = Duration::from_secs(seconds);
    let impostors = impostors(deployed.shape, access, has_set_name);
    let mut generator =
        FaultGenerator { rng, deployed, span, left_out, impostors, steps: Vec::new() };
    if generator.rng.below(4) == 0 {
        generator.add_latency();
    }
    for _ in 0..faults {
        match kind {
            Kind::Random | Kind::Scan => generator.any_fault(),
            Kind::Failover => generator.failover(),
            Kind::Partition => generator.partition(),
            Kind::Flapping => generator.flapping(),
        }
    }
    generator.rng = access_rng;
    generator.access(access);
    let mut steps = generator.steps;
    steps.sort_by_key(|(at, _)| *at);
    Scenario { steps }
}

/// Adds invalid replies to commands from applications. These faults are drawn separately, so that
/// the other faults of the seed do not depend on them.
pub(super) fn add_bad_replies(seed: u64, deployed: &Deployed, scenario: &mut Scenario) {
    let mut rng = Rng::new(seed ^ 0xBAD0).fork();
    let generator = &mut FaultGenerator {
        rng: &mut rng,
        deployed,
        span: Duration::from_secs(15),
        left_out: 0,
        impostors: &[],
        steps: std::mem::take(&mut scenario.steps),
    };
    for _ in 0..generator.rng.below(4) {
        let target = Target::from(generator.member());
        let mut fail = FailCommand::default();
        fail.commands = COMMANDS.map(str::to_owned).to_vec();
        fail.mode = Mode::Times(1 + generator.rng.below(3) as u32);
        fail.bad_reply = Some(pick(generator.rng, BadReply::ALL));
        generator.step(Action::FailPoint(target, Some(fail)));
    }
    let steps = &mut generator.steps;
    steps.sort_by_key(|(at, _)| *at);
    scenario.steps = std::mem::take(steps);
}

/// Generates faults, one at a time.
struct FaultGenerator<'m> {
    rng: &'m mut Rng,
    deployed: &'m Deployed,
    span: Duration,
    /// The kinds of faults that this seed does not use, one bit each.
    left_out: u64,
    /// The impostors from which the client recovers.
    impostors: &'static [Impostor],
    steps: Vec<(Duration, Step)>,
}

/// Returns the impostors from which the client recovers. If the client expels a member of a set,
/// the primary's replies name the member again; if it expels a mongos, the SRV records name the
/// mongos again. Without a primary or SRV records, the client never returns to an expelled server.
/// A client without a set name believes the first server that answers.
fn impostors(shape: Shape, access: Access, has_set_name: bool) -> &'static [Impostor] {
    use Impostor::{Arbiter, Ghost, Hidden, Mongos, OtherPrimary, OtherSet, Renamed, Standalone};

    match shape {
        Shape::ReplicaSet if has_set_name => {
            &[Standalone, Mongos, Ghost, Arbiter, Hidden, Renamed, OtherSet]
        }
        Shape::ReplicaSet => &[Standalone, Ghost, Arbiter, Hidden, Renamed],
        Shape::Direct | Shape::Standalone => Impostor::ALL,
        Shape::Sharded if access.srv => {
            &[Standalone, Ghost, Arbiter, Hidden, OtherSet, OtherPrimary]
        }
        Shape::Sharded | Shape::LoadBalanced => &[],
    }
}

/// The maximum number of attempts to draw a fault that the seed does not leave out.
const ATTEMPTS: usize = 16;

/// Draws the kinds of faults that a seed leaves out. Half of the seeds leave out none; the others
/// leave out each kind with a probability of one half. The remaining faults can then lead to states
/// that the other faults would prevent ("swarm testing").
fn left_out(rng: &mut Rng) -> u64 {
    if rng.below(2) == 0 { 0 } else { rng.below(1 << 12) }
}

impl FaultGenerator<'_> {
    fn any_fault(&mut self) {
        let is_set = matches!(self.deployed.shape, Shape::ReplicaSet | Shape::Direct);
        let kinds = if is_set { 12 } else { 7 };
        let mut draws = (0..ATTEMPTS).map(|_| self.rng.below(kinds));
        let Some(kind) = draws.find(|kind| self.left_out >> kind & 1 == 0) else {
            return;
        };
        match kind {
            0 | 1 => self.network(),
            2 | 3 => self.process(),
            4 => self.fail_point(),
            5 => self.replies(),
            6 => self.impostor(),
            7 | 8 => self.failover(),
            9 => self.partition(),
            10 => self.membership(),
            _ => self.tune(),
        }
    }

    /// Returns a random time within the scenario, in whole milliseconds.
    fn random_time(&mut self) -> Duration {
        let span = u64::try_from(self.span.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.rng.below(span))
    }

    /// Returns the duration of a fault, which is usually short and sometimes longer than every
    /// timeout.
    fn fault_duration(&mut self) -> Duration {
        let max = pick(self.rng, &[300, 2000, 8000, 30_000]);
        Duration::from_millis(1 + self.rng.below(max))
    }

    fn member(&mut self) -> MemberId {
        MemberId(self.rng.below(self.deployed.processes) as u16)
    }

    /// Returns a random member other than the first.
    fn not_first(&mut self) -> Option<MemberId> {
        let others = self.deployed.processes.checked_sub(1).filter(|n| *n > 0)?;
        Some(MemberId(1 + self.rng.below(others) as u16))
    }

    fn target(&mut self) -> Target {
        match self.rng.below(4) {
            0 => Target::Primary,
            1 => Target::Secondary,
            _ => self.member().into(),
        }
    }

    fn step(&mut self, step: impl Into<Step>) {
        let at = self.random_time();
        self.steps.push((at, step.into()));
    }

    /// Adds a fault that ends after a while.
    fn temporary_fault(&mut self, begin: impl Into<Step>, end: impl Into<Step>) {
        let at = self.random_time();
        let until = at + self.fault_duration();
        self.steps.push((at, begin.into()));
        self.steps.push((until, end.into()));
    }

    /// Adds a fault that is switched on and off again.
    fn switch<S: Into<Step>>(&mut self, fault: impl Fn(bool) -> S) {
        self.temporary_fault(fault(true), fault(false));
    }

    fn add_latency(&mut self) {
        let step = NetFault::Latency(self.latency()).into();
        self.steps.push((Duration::ZERO, step));
    }

    /// Returns a network latency that is either long, as between continents, or highly variable.
    fn latency(&mut self) -> Latency {
        if self.rng.below(2) == 0 {
            return Latency::WAN;
        }
        let max = pick(self.rng, &[1, 30, 300]);
        let micros = |rng: &mut Rng| Duration::from_micros(rng.below(1000 * max));
        Latency {
            min: micros(self.rng),
            spread: 3 * micros(self.rng),
            chunked: self.rng.below(2) == 0,
        }
    }

    fn network(&mut self) {
        let member = self.member().into();
        match self.rng.below(8) {
            0 => self.switch(|on| NetFault::Refuse(member, on)),
            1 | 2 => self.switch(|on| NetFault::Blackhole(member, on)),
            3 | 4 => self.step(NetFault::Reset(member)),
            5 => {
                let bytes = self.rng.below(3000) as usize;
                self.switch(|on| NetFault::ResetAfter(member, on.then_some(bytes)));
            }
            6 => {
                let latency = pick(self.rng, &[None, Some(50), Some(2000)]);
                let latency = latency.map(|millis| DnsFault::Slow(Duration::from_millis(millis)));
                let fault = latency.unwrap_or(DnsFault::NoSuchName);
                self.switch(|on| NetFault::Dns(None, on.then_some(fault)));
            }
            _ => {
                let latency = self.latency();
                self.temporary_fault(NetFault::Latency(latency), NetFault::Latency(Latency::LAN));
            }
        }
    }

    fn process(&mut self) {
        let member = self.member();
        let target = Target::from(member);
        match self.rng.below(6) {
            0 | 1 => self.temporary_fault(Action::Kill(target), Action::Restart(target)),
            2 => self.temporary_fault(Action::Shutdown(target), Action::Restart(target)),
            3 => self.step(Action::Restart(target)),
            4 => self.temporary_fault(Action::Freeze(target), Action::Thaw(target)),
            _ => self.temporary_fault(Action::CutOff(target), Action::Heal),
        }
    }

    fn failover(&mut self) {
        let member = self.target();
        match self.rng.below(7) {
            0 | 1 => {
                let period = self.fault_duration();
                self.step(Action::StepDown { period });
            }
            2 => self.step(Action::StepUp(member)),
            3 => self.step(Action::Kill(Target::Primary)),
            4 => self.step(Action::Shutdown(Target::Primary)),
            5 => {
                // The generator does not know which member is frozen, so it thaws a random one.
                // Thawing any other member has no effect.
                self.step(Action::Freeze(Target::Primary));
                let member = self.member();
                self.step(Action::Thaw(member.into()));
            }
            _ => {
                let member = self.member();
                self.step(Action::Restart(member.into()));
            }
        }
    }

    fn partition(&mut self) {
        let member = Target::from(self.member());
        match self.rng.below(5) {
            0 => {
                let mut sides = (Vec::new(), Vec::new());
                for member in 0..self.deployed.processes {
                    let side = if self.rng.below(2) == 0 { &mut sides.0 } else { &mut sides.1 };
                    side.push(Target::from(member as u16));
                }
                if !sides.0.is_empty() && !sides.1.is_empty() {
                    self.temporary_fault(Action::Partition(sides.0, sides.1), Action::Heal);
                }
            }
            1 => self.temporary_fault(Action::Isolate(member), Action::Heal),
            2 => self.temporary_fault(Action::CutOff(member), Action::Heal),
            3 => self.temporary_fault(Action::SplitBrain, Action::Heal),
            _ => self.switch(|on| NetFault::Blackhole(member, on)),
        }
    }

    fn flapping(&mut self) {
        let at = self.random_time();
        let member = Target::from(self.member());
        let gap = Duration::from_millis(10 + self.rng.below(900));
        let (begin, end): (Step, Step) = match self.rng.below(4) {
            0 => (Action::Kill(member).into(), Action::Restart(member).into()),
            1 => (NetFault::Refuse(member, true).into(), NetFault::Refuse(member, false).into()),
            2 => (NetFault::Reset(member).into(), NetFault::Reset(member).into()),
            _ => (Action::StepDown { period: gap }.into(), Action::Heal.into()),
        };
        self.steps.push((at, begin));
        self.steps.push((at + gap, end));
    }

    fn membership(&mut self) {
        let Some(member) = self.not_first() else {
            return;
        };
        let target = Target::from(member);
        match self.rng.below(4) {
            0 | 1 if self.deployed.spare => {
                let spare = MemberId(self.deployed.processes as u16 - 1);
                self.step(Action::Add(spare));
            }
            0 | 1 => self.temporary_fault(Action::Remove(target), Action::Add(member)),
            2 => self.step(Action::Remove(target)),
            _ => self.switch(|on| {
                let priority = if on { 0.0 } else { 1.0 };
                Action::Edit(target, vec![Edit::Hidden(on), Edit::Priority(priority)])
            }),
        }
    }

    fn tune(&mut self) {
        let target = self.target();
        match self.rng.below(8) {
            0 => {
                let priority = self.rng.below(4) as f64;
                let Some(member) = self.not_first() else {
                    return;
                };
                self.step(Action::Edit(member.into(), vec![Edit::Priority(priority)]));
            }
            1 => self.switch(|on| Action::Maintenance(target, on)),
            2 => {
                let policy = pick(self.rng, &[HorizonPolicy::Close, HorizonPolicy::Error]);
                self.step(Action::Horizon(policy));
            }
            3 => {
                let lag = self.fault_duration();
                self.step(Action::Lag(target, lag));
            }
            4 => {
                let period = self.fault_duration();
                self.step(Action::ReplSetFreeze(target, period));
            }
            5 => {
                let tags = vec![("dc".to_owned(), pick(self.rng, &["ny", "la"]).to_owned())];
                self.step(Action::Edit(target, vec![Edit::Tags(tags)]));
            }
            6 => {
                let (old, new) = (pick(self.rng, TOO_OLD), pick(self.rng, VERSIONS));
                let member = Target::from(self.member());
                self.temporary_fault(Action::Upgrade(member, old), Action::Upgrade(member, new));
            }
            _ => {
                let version = pick(self.rng, VERSIONS);
                let member = self.member();
                self.step(Action::Upgrade(member.into(), version));
            }
        }
    }

    /// Makes another server answer in place of a member, often from the beginning.
    fn impostor(&mut self) {
        let is_set = self.deployed.shape == Shape::ReplicaSet;
        let member = if is_set { self.not_first() } else { Some(self.member()) };
        let Some(member) = member.filter(|_| !self.impostors.is_empty()) else {
            return;
        };
        let kind = pick(self.rng, self.impostors);
        let begin = if self.rng.below(2) == 0 { Duration::ZERO } else { self.random_time() };
        let end = begin + self.fault_duration();
        self.steps.push((begin, Action::Impostor(member.into(), Some(kind)).into()));
        self.steps.push((end, Action::Impostor(member.into(), None).into()));
    }

    /// Makes a member stop streaming replies to awaitable hellos, or reply again and again in rapid
    /// succession.
    fn replies(&mut self) {
        let target = Target::from(self.member());
        if self.rng.below(2) == 0 {
            self.switch(|on| Action::Exhaust(target, !on));
        } else {
            let every = pick(self.rng, &[1000, 3000, 20_000, 60_000]);
            let every = Duration::from_micros(every);
            self.switch(|on| Action::Flood(target, on.then_some(every)));
        }
    }

    fn fail_point(&mut self) {
        let target = Target::from(self.member());
        let mut fail = FailCommand::default();
        fail.commands = vec!["hello".into(), "isMaster".into()];
        fail.mode = match self.rng.below(3) {
            0 => Mode::AlwaysOn,
            _ => Mode::Times(1 + self.rng.below(4) as u32),
        };
        match self.rng.below(4) {
            0 => fail.close_connection = true,
            1 => {
                let max = pick(self.rng, &[50, 1000, 15_000]);
                fail.block = Some(Duration::from_millis(self.rng.below(max)));
            }
            _ => {
                fail.error_code =
                    Some(pick(self.rng, &[91, 10107, 11600, 11602, 13435, 462, 8000]));
            }
        }
        self.switch(|on| Action::FailPoint(target, on.then(|| fail.clone())));
    }
}

impl FaultGenerator<'_> {
    /// Adds faults to look-ups, TLS and proxies, but only to those that `access` uses.
    fn access(&mut self, access: Access) {
        for _ in 0..self.rng.below(5) {
            match self.rng.below(3) {
                0 if access != Access::PLAIN => self.look_up(access),
                1 if access.tls => self.tls(),
                2 if access.is_proxied() => self.proxy(),
                _ => {}
            }
        }
        if access.srv {
            for _ in 0..=self.rng.below(3) {
                self.records();
            }
        }
    }

    /// Makes look-ups of one name fail: the name of the SRV records, of a member, or of the proxy.
    /// If there is a proxy, the members' names are looked up by the proxy instead of the client.
    fn look_up(&mut self, access: Access) {
        let srv = access.srv && self.rng.below(2) == 0;
        let name = if srv {
            SRV_NAME.into()
        } else if access.is_proxied() {
            proxy().host().to_owned()
        } else {
            let process = self.rng.below(self.deployed.processes);
            self.deployed.address(process).host().to_owned()
        };
        let name = Some(Box::from(name));
        let millis = |rng: &mut sdam_core::rng::Rng| Duration::from_millis(1 + rng.below(5000));
        let fault = match self.rng.below(5) {
            0 => DnsFault::NoSuchName,
            1 => DnsFault::ServerFailure,
            2 => DnsFault::Silence,
            3 => DnsFault::Flapping(millis(self.rng)),
            _ => DnsFault::Slow(millis(self.rng)),
        };
        self.switch(|on| NetFault::Dns(name.clone(), on.then_some(fault)));
    }

    /// Makes the SRV records name only some of the servers, sometimes with a host that clients must
    /// ignore, or temporarily removes all of them.
    fn records(&mut self) {
        let mut hosts: Vec<_> = (0..self.deployed.processes).collect();
        hosts.retain(|_| self.rng.below(2) == 0);
        if hosts.is_empty() {
            hosts.push(self.rng.below(self.deployed.processes));
        }
        let mut hosts: Vec<_> = hosts.into_iter().map(mongos).collect();
        if self.rng.below(4) == 0 {
            hosts.push(ServerAddress::new("a.elsewhere.test", 27017));
        }
        let ttl = pick(self.rng, &[Duration::ZERO, Duration::from_secs(60), MAX_TTL]);
        let records = |hosts| NetFault::Srv { name: SRV_NAME.into(), ttl, hosts };
        if self.rng.below(4) == 0 {
            self.temporary_fault(records(Vec::new()), records(hosts));
        } else {
            self.step(records(hosts));
        }
    }

    /// Makes handshakes fail, or changes a certificate. Open connections survive a new certificate,
    /// so they are usually reset afterwards.
    fn tls(&mut self) {
        let member = Target::from(self.member());
        let faults = [TlsFault::Stall, TlsFault::Cut, TlsFault::PlainText];
        let begin = match self.rng.below(6) {
            0..3 => NetFault::Tls(member, Some(pick(self.rng, &faults))),
            3 => NetFault::Certificate(member, CertificateChange::Expire),
            4 => NetFault::Certificate(member, CertificateChange::Name("other".into())),
            _ => NetFault::Certificate(member, CertificateChange::Issuer("other".into())),
        };
        let end = match begin {
            NetFault::Tls(..) => NetFault::Tls(member, None),
            _ => NetFault::Certificate(member, CertificateChange::Renew),
        };
        let at = self.random_time();
        let until = at + self.fault_duration();
        self.steps.extend([(at, begin.into()), (until, end.into())]);
        if self.rng.below(3) > 0 {
            let soon = at + Duration::from_millis(self.rng.below(500));
            self.steps.push((soon, NetFault::Reset(member).into()));
        }
    }

    fn proxy(&mut self) {
        let faults = [ProxyFault::Down, ProxyFault::Stall, ProxyFault::Reject];
        if self.rng.below(4) == 0 {
            return self.step(NetFault::ResetProxy(proxy()));
        }
        let fault = pick(self.rng, &faults);
        self.switch(|on| NetFault::Proxy(proxy(), on.then_some(fault)));
    }
}
