//! Faults in look-ups, TLS and proxies.

use std::time::Duration;

use sdam_core::address::ServerAddress;
use sdam_sim::{
    action::Target,
    runtime::{DnsFault, ProxyFault, TlsFault},
    scenario::{CertificateChange, NetFault},
};

use super::FaultGenerator;
use crate::plan::{
    access::{Access, MAX_TTL, SRV_NAME, mongos, proxy},
    pick,
};

impl FaultGenerator<'_> {
    /// Adds faults to look-ups, TLS and proxies, but only to those that `access` uses.
    pub(super) fn access(&mut self, access: Access) {
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
