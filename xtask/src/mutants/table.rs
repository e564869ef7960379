//! Deliberate bugs.

/// A deliberate bug: a text in a file, and its replacement.
#[derive(Debug)]
pub(super) struct Mutant {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) file: &'static str,
    pub(super) find: &'static str,
    pub(super) replace: &'static str,
}

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "skip-clear",
        about: "a pool is not cleared when its server's check fails",
        file: "sdam-core/src/machine/update.rs",
        find: r"if let (Some(server), Some(clear)) = (responder, clear) {
            self.clear_pool(server, clear, effects);
        }",
        replace: "",
    },
    Mutant {
        name: "stale-primary",
        about: "a primary of an earlier election is accepted (6.0 and later)",
        file: "sdam-core/src/machine/transition.rs",
        find: "if own.compare(maxima).is_lt() {",
        replace: "if false {",
    },
    Mutant {
        name: "stale-primary-old",
        about: "elections are compared in the wrong order (before 6.0)",
        file: "sdam-core/src/machine/transition.rs",
        find: "(max_version, max_id) > (set_version, election_id)",
        replace: "(max_version, max_id) < (set_version, election_id)",
    },
    Mutant {
        name: "forget-election",
        about: "the newest election is not remembered",
        file: "sdam-core/src/machine/transition.rs",
        find: "self.next.max_election = own;",
        replace: "",
    },
    Mutant {
        name: "two-primaries",
        about: "the old primary stays when a new one is found",
        file: "sdam-core/src/machine/transition.rs",
        find: r"        self.displace_other_primaries(server);
",
        replace: "",
    },
    Mutant {
        name: "type-lags",
        about: "the topology keeps its type when the primary is lost",
        file: "sdam-core/src/machine/transition.rs",
        find: "(T::ReplicaSetWithPrimary, S::Unknown | S::RsGhost) => self.check_if_has_primary(),",
        replace: "(T::ReplicaSetWithPrimary, S::Unknown | S::RsGhost) => {}",
    },
    Mutant {
        name: "keep-members",
        about: "members missing from the primary's hosts are kept",
        file: "sdam-core/src/machine/transition.rs",
        find: r"        self.keep_only(|address| members.binary_search(&address).is_ok(), &reason);
",
        replace: "",
    },
    Mutant {
        name: "publish-before-ready",
        about: "a server is published before its pool is ready",
        file: "sdam-core/src/machine/update.rs",
        find: r"        if let Some(responder) = responder.filter(|_| consequences.checked) {
            self.make_ready(&next, responder, &mut effects);
        }
        if is_visible(&previous, &next, &diff) {
            effects.push(Effect::Publish(Arc::clone(&next)));
        }
",
        replace: r"        if is_visible(&previous, &next, &diff) {
            effects.push(Effect::Publish(Arc::clone(&next)));
        }
        if let Some(responder) = responder.filter(|_| consequences.checked) {
            self.make_ready(&next, responder, &mut effects);
        }
",
    },
    Mutant {
        name: "same-generation",
        about: "clearing a pool does not raise its generation",
        file: "sdam-core/src/machine.rs",
        find: "self.generation = self.generation.next();",
        replace: "",
    },
    Mutant {
        name: "old-generation-error",
        about: "errors of earlier generations are applied",
        file: "sdam-core/src/machine/application.rs",
        find: ".is_none_or(|own| error.generation < own)",
        replace: ".is_none()",
    },
    Mutant {
        name: "old-generation-handshake",
        about: "handshakes of earlier generations are applied",
        file: "sdam-core/src/machine.rs",
        find: ".is_none_or(|own| generation < own)",
        replace: ".is_none()",
    },
    Mutant {
        name: "old-reply",
        about: "replies older than the known topology version are applied",
        file: "sdam-core/src/server.rs",
        find: "TopologyVersion::compare(self.topology_version, version).is_gt()",
        replace: "false && version.is_none()",
    },
    Mutant {
        name: "old-error",
        about: "errors that repeat the known topology version are applied",
        file: "sdam-core/src/server.rs",
        find: "TopologyVersion::compare(self.topology_version, version).is_ge()",
        replace: "TopologyVersion::compare(self.topology_version, version).is_gt()",
    },
    Mutant {
        name: "no-floor",
        about: "requested checks ignore minHeartbeatFrequencyMS",
        file: "sdam-core/src/monitor/timing.rs",
        find: "now.max(idle.ended + self.min_heartbeat_frequency)",
        replace: "now",
    },
    Mutant {
        name: "end-twice",
        about: "a cancelled heartbeat ends twice",
        file: "sdam-core/src/monitor/transition.rs",
        find: r#"out.emit(check.cancelled(now, "an operation met a network error"));"#,
        replace: r#"let ended = check.cancelled(now, "an operation met a network error");
                out.emit(ended.clone());
                out.emit(ended);"#,
    },
    Mutant {
        name: "retry-for-ever",
        about: "every lost check is retried at once",
        file: "sdam-core/src/monitor/transition.rs",
        find: "let retry = lost && known && !is_retry;",
        replace: "let retry = lost && !is_retry;",
    },
    Mutant {
        name: "no-retry",
        about: "a lost check of a known server is not retried at once",
        file: "sdam-core/src/monitor/transition.rs",
        find: "let retry = lost && known && !is_retry;",
        replace: "let retry = lost && known && !is_retry && false;",
    },
    Mutant {
        name: "forget-rtt",
        about: "every round-trip time of a lost server is forgotten",
        file: "sdam-core/src/rtt.rs",
        find: "newest: self.newest,",
        replace: "newest: None,",
    },
    Mutant {
        name: "no-limit",
        about: "checks have no time-out",
        file: "sdam-core/src/monitor/timing.rs",
        find: "let limit = self.connect_timeout?;",
        replace: "let limit = self.connect_timeout.filter(|_| false)?;",
    },
    Mutant {
        name: "no-cancel",
        about: "checks are not cancelled when operations meet network errors",
        file: "sdam/src/engine/control.rs",
        find: "self.post(CANCEL);",
        replace: "",
    },
    Mutant {
        name: "no-cancel-at-hello",
        about: "checks are not cancelled when servers refuse the hello of pools",
        file: "sdam-core/src/machine/application.rs",
        find: "state_change.is_none() || report.stage == Stage::Auth",
        replace: "error.is_network() || report.stage == Stage::Auth",
    },
    Mutant {
        name: "lost-wake-up",
        about: "a sleeping monitor is not woken by a message",
        file: "sdam/src/engine/control.rs",
        find: "self.waker.wake();",
        replace: "",
    },
    Mutant {
        name: "wake-one",
        about: "a change wakes only one waiting selection",
        file: "sdam/src/topology/shared.rs",
        find: "self.published.changed.notify(usize::MAX);",
        replace: "self.published.changed.notify(1);",
    },
    Mutant {
        name: "no-request-when-idle",
        about: "monitors that become idle ignore waiting selections",
        file: "sdam/src/monitor/task.rs",
        find: "earliest.filter(|_| self.host.is_check_wanted());",
        replace: "earliest.filter(|_| false);",
    },
    Mutant {
        name: "no-request",
        about: "a selection that begins to wait does not wake the monitors",
        file: "sdam/src/topology/select.rs",
        find: "if first {",
        replace: "if first && false {",
    },
    Mutant {
        name: "leak-waiter",
        about: "a selection that has ended is still counted as waiting",
        file: "sdam/src/select/waiters.rs",
        find: "self.0.0.fetch_sub(1, Ordering::SeqCst);",
        replace: "",
    },
    Mutant {
        name: "leak-monitor",
        about: "the tasks of a removed server continue",
        file: "sdam/src/engine.rs",
        find: r"                        server.stop();
",
        replace: "",
    },
    Mutant {
        name: "leak-pool",
        about: "the pool of a removed server is not closed",
        file: "sdam/src/engine.rs",
        find: r"                            after.panic.catch(|| pool.close());
",
        replace: "",
    },
    Mutant {
        name: "leave-events",
        about: "closing does not wait for the last events",
        file: "sdam/src/topology.rs",
        find: "future::join(tasks.dispatchers.finished(), tasks.pools.finished())",
        replace: "async {}",
    },
    Mutant {
        name: "close-early",
        about: "the topology is closed before the connections of its pools",
        file: "sdam-events/src/queue/under_way.rs",
        find: "self.heartbeats + self.connections + self.check_outs + self.commands",
        replace: "self.heartbeats",
    },
    Mutant {
        name: "impatient-close",
        about: "closing does not wait for connections in use",
        file: "sdam/src/topology.rs",
        find: "let end = shared.now() + Topology::<NoPools>::DELIVERY_PATIENCE;",
        replace: "let end = shared.now();",
    },
    Mutant {
        name: "forget-ends",
        about: "the ends that closing does not wait for do not count as dropped",
        file: "sdam-events/src/queue.rs",
        find: "self.leave_out(state.under_way.total());",
        replace: "",
    },
    Mutant {
        name: "read-on",
        about: "replies pushed without a pause are read without a limit",
        file: "sdam-core/src/monitor/pace.rs",
        find: "self.rested.since(now) <= BURST * INTERVAL",
        replace: "true",
    },
    Mutant {
        name: "late-timeout",
        about: "a selection times out a second late",
        file: "sdam/src/topology/select.rs",
        find: "let mut expiry = self.io.clock.sleep_until(deadline);",
        replace: "let mut expiry = self.io.clock.sleep_until(deadline + std::time::Duration::from_secs(1));",
    },
    Mutant {
        name: "secondary-writes",
        about: "writes go to secondaries",
        file: "sdam-select/src/algorithm.rs",
        find: "if is_suitable(server) {",
        replace: "if server.server_type.is_data_bearing() {",
    },
    Mutant {
        name: "connect-freely",
        about: "a pool opens more connections at once than maxConnecting",
        file: "sdam-pool/src/machine/attempts.rs",
        find: "&& self.attempts.len() < self.attempts.limit",
        replace: "",
    },
    Mutant {
        name: "grow-freely",
        about: "a pool has more connections than maxPoolSize",
        file: "sdam-pool/src/machine/attempts.rs",
        find: "&& self.total() < max",
        replace: "&& max > 0",
    },
    Mutant {
        name: "hand-over-stale",
        about: "a check-out accepts a connection of the generation before a clear",
        file: "sdam-pool/src/machine/work.rs",
        find: "if !matches!(self.state, State::Closed) && !self.is_stale(&connection) {",
        replace: "if !matches!(self.state, State::Closed) {",
    },
    Mutant {
        name: "keep-waiting",
        about: "check-outs that a clear has evicted are not woken",
        file: "sdam-pool/src/machine/waiters.rs",
        find: "        if !queue.is_empty() {\n            self.evicted.push(queue);\n        }",
        replace: "        drop(queue);",
    },
    Mutant {
        name: "finish-attempts",
        about: "a closed pool goes on to open connections",
        file: "sdam-pool/src/machine.rs",
        find: "        self.cancel_attempts(&mut after);\n        self.wake_worker",
        replace: "        self.wake_worker",
    },
    Mutant {
        name: "skip-queue",
        about: "a connection that is checked in becomes idle although check-outs wait",
        file: "sdam-pool/src/machine.rs",
        find: "            None => self.waiters.next(),\n        };",
        replace: "            None => None,\n        };",
    },
    Mutant {
        name: "trust-no-ok",
        about: "a reply without `ok` is a success",
        file: "sdam-core/src/reply.rs",
        find: "return Err(ServerError::new(ErrorKind::Protocol, stage, text));",
        replace: "let _ = text;\n            return Ok(None);",
    },
    Mutant {
        name: "out-of-step",
        about: "a connection is used again after a message that is not the reply",
        file: "sdam-transport/src/wire/exchange.rs",
        find: "mem::replace(&mut self.state, State::Broken)",
        replace: "mem::take(&mut self.state)",
    },
    Mutant {
        name: "any-reply",
        about: "the reply to another request is accepted",
        file: "sdam-transport/src/wire/exchange.rs",
        find: "if message.response_to() != due.response_to {",
        replace: "if message.response_to() != due.response_to && due.response_to == 0 {",
    },
    Mutant {
        name: "plain-reconnect",
        about: "only the first connection of the process negotiates TLS",
        file: "sdam-transport/src/net.rs",
        find: "let Some(tls) = &self.layers.tls else {",
        replace: r"use std::sync::atomic::{AtomicBool, Ordering};
        static CONNECTED: AtomicBool = AtomicBool::new(false);
        let tls = self.layers.tls.as_ref();
        let Some(tls) = tls.filter(|_| !CONNECTED.swap(true, Ordering::Relaxed)) else {",
    },
    Mutant {
        name: "past-proxy",
        about: "only the first connection of the process goes through the proxy",
        file: "sdam-transport/src/net.rs",
        find: "let Some(proxy) = proxy.filter(|_| !place.is_unix()) else {",
        replace: r"use std::sync::atomic::{AtomicBool, Ordering};
        static CONNECTED: AtomicBool = AtomicBool::new(false);
        let Some(proxy) = proxy.filter(|_| !CONNECTED.swap(true, Ordering::Relaxed)) else {",
    },
    Mutant {
        name: "lose-proxy",
        about: "adding TLS to a transport takes its proxy away",
        file: "sdam-transport/src/net.rs",
        find: "proxy: layers.proxy.or(own.proxy),",
        replace: "proxy: layers.proxy,",
    },
    Mutant {
        name: "wrong-stage",
        about: "a TLS handshake that stalls is an error of connecting",
        file: "sdam-transport/src/net.rs",
        find: "Err(TransportError::timeout(Stage::Tls, message).with_source(elapsed))",
        replace: "Err(TransportError::timeout(Stage::Connect, message).with_source(elapsed))",
    },
    Mutant {
        name: "keep-srv-hosts",
        about: "servers that have left the SRV records stay",
        file: "sdam-core/src/machine/open_close.rs",
        find: "transition.keep_only(|address| hosts.contains(address), &reason);",
        replace: "",
    },
    Mutant {
        name: "rescan-eagerly",
        about: "SRV records are looked up every second",
        file: "sdam-core/src/srv.rs",
        find: "self.next_rescan = now + interval;",
        replace: "self.next_rescan = now + interval.min(Duration::from_secs(1));",
    },
    Mutant {
        name: "trust-foreign-hosts",
        about: "hosts of SRV records outside of the domain are used",
        file: "sdam-core/src/srv.rs",
        find: ".extract_if(.., |host| !self.srv.allows(host))",
        replace: ".extract_if(.., |_| false)",
    },
];
