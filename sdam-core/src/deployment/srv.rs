//! Polls the SRV record (Polling SRV Records for mongos Discovery).

use alloc::{sync::Arc, vec::Vec};
use core::time::Duration;

use super::{Deployment, Output, Outputs, scan::Scans};
use crate::{
    error::{Error, ErrorKind, Stage},
    event::EventKind,
    monitor::MonitorConfig,
    options::{Options, Srv},
    srv::{MIN_RESCAN_INTERVAL, SrvRecords},
    time::Instant,
};

/// Looks up the SRV record of a deployment, one look-up at a time.
#[derive(Clone, Debug)]
pub(super) struct SrvPolling {
    pub(super) srv: Srv,
    name: Arc<str>,
    /// `heartbeatFrequencyMS`: the interval after a failure.
    heartbeat_frequency: Duration,
    timeout: Option<Duration>,
    /// The time at which the next or the outstanding look-up is due; `None` before the topology
    /// opens.
    next: Option<Instant>,
    is_outstanding: bool,
}

impl SrvPolling {
    /// Prepares the polling of the SRV record in `options`, if there is one and the topology's type
    /// allows polling.
    pub(super) fn new(options: &Options, config: &MonitorConfig) -> Option<Self> {
        let srv = options.srv.clone()?;
        let polls = options.topology_type().polls_srv();
        polls.then(|| Self {
            name: srv.query_name().into(),
            heartbeat_frequency: config.heartbeat_frequency,
            timeout: options.connect_timeout,
            next: None,
            is_outstanding: false,
            srv,
        })
    }

    /// Begins the first interval, unless it has begun already.
    pub(super) fn open(&mut self, now: Instant) {
        let interval = self.srv.ttl.max(MIN_RESCAN_INTERVAL);
        self.next.get_or_insert(now + interval);
    }

    /// Writes the state that determines future outputs.
    #[cfg(feature = "model")]
    pub(super) fn write_key(&self, now: Instant, hasher: &mut impl core::hash::Hasher) {
        use core::hash::Hash;
        let next = self.next.map(|next| next.since(now));
        (next, self.is_outstanding).hash(hasher);
    }

    /// Removes hosts outside the domain from the records. Returns an error if no host remains.
    fn verify(&self, mut records: SrvRecords, out: &mut Outputs) -> Result<SrvRecords, Error> {
        let unusable = |reason| Err(Error::new(ErrorKind::Protocol, Stage::Dns, reason));
        if records.hosts.is_empty() {
            return unusable("the name has no SRV record");
        }
        let hosts = &mut records.hosts;
        let foreign: Vec<_> = hosts.extract_if(.., |host| !self.srv.allows(host)).collect();
        if !foreign.is_empty() {
            out.emit(EventKind::SrvHostsIgnored {
                name: Arc::clone(&self.name),
                domain: self.srv.domain().into(),
                hosts: foreign.into(),
            });
        }
        if records.hosts.is_empty() {
            return unusable("no host of the SRV record is in its domain");
        }
        Ok(records)
    }
}

impl Deployment {
    /// Returns the time at which the look-up timer is due; `None` in inline mode, and while a
    /// look-up is outstanding or the record is not polled.
    pub(super) fn next_look_up(&self) -> Option<Instant> {
        let srv = self.srv.as_ref().filter(|srv| !srv.is_outstanding)?;
        srv.next.filter(|_| self.polls_srv() && self.inline.is_none())
    }

    /// Returns whether the record has to be looked up. True even if a look-up is outstanding,
    /// because the caller may have abandoned it.
    pub(super) fn look_up_is_due(&self, now: Instant) -> bool {
        let next = self.srv.as_ref().and_then(|srv| srv.next);
        next.is_some_and(|next| next <= now) && self.polls_srv()
    }

    pub(super) fn look_up(&mut self, now: Instant, out: &mut Outputs) {
        if let Some(srv) = &mut self.srv {
            srv.is_outstanding = true;
            out.push(Output::LookUp {
                name: Arc::clone(&srv.name),
                deadline: srv.timeout.map(|timeout| now + timeout),
            });
        }
    }

    /// Returns whether the record is polled. Once polling has stopped, it never resumes.
    fn polls_srv(&self) -> bool {
        !self.is_closed() && self.description().topology_type().polls_srv()
    }

    /// Handles the outcome of a look-up. The interval until the next look-up begins now.
    pub(super) fn looked_up(
        &mut self,
        now: Instant,
        outcome: Result<SrvRecords, Error>,
        out: &mut Outputs,
    ) {
        let closed = self.is_closed();
        let outstanding = |srv: &&mut SrvPolling| srv.is_outstanding && !closed;
        let Some(srv) = self.srv.as_deref_mut().filter(outstanding) else {
            return;
        };
        srv.is_outstanding = false;
        let verified = outcome.and_then(|records| srv.verify(records, out));
        let interval = match &verified {
            Ok(records) => records.ttl.max(MIN_RESCAN_INTERVAL),
            Err(_) => srv.heartbeat_frequency,
        };
        srv.next = Some(now + interval);
        match verified {
            Ok(records) => self.hosts(now, &records.hosts, out),
            Err(failure) => out.emit(EventKind::SrvLookupFailed {
                name: Arc::clone(&srv.name),
                failure,
                next: interval,
            }),
        }
        self.step(now, out, Scans::looked_up);
    }
}
