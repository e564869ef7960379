//! Passes the program's bytes through a proxy and TLS to a server process.

use super::{
    network::Direction,
    proxy::{ProxyFault, Refusal, Step},
    state::{SimState, Unreached},
    tls::Terms,
};

impl SimState {
    /// Handles bytes that arrive from the program.
    pub(super) fn arrive(&mut self, id: u64, bytes: &[u8]) {
        let Some(socket) = self.network.sockets.get_mut(&id) else {
            return;
        };
        let Some((address, session)) = &mut socket.proxy else {
            return self.arrive_at_server(id, bytes);
        };
        let proxy = self.network.proxies.get(address);
        let login = proxy.and_then(|proxy| proxy.login.as_ref());
        let steps = session.receive(bytes, login);
        self.perform_for_proxy(id, steps);
    }

    fn perform_for_proxy(&mut self, id: u64, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::Reply(reply) => self.transmit(id, Direction::ToClient, &reply),
                Step::Refuse(reply) => {
                    self.transmit(id, Direction::ToClient, &reply);
                    self.close_for_client(id);
                }
                Step::Forward(bytes) => self.arrive_at_server(id, &bytes),
                Step::Connect(address) => {
                    let outcome = if self.rejects(id) {
                        Err(Refusal::Ruleset)
                    } else {
                        match self.reach(&address) {
                            Ok(server) => {
                                self.network.link(id, server);
                                Ok(())
                            }
                            Err(Unreached::Nowhere) => Err(Refusal::HostUnreachable),
                            Err(Unreached::Refused) => Err(Refusal::ConnectionRefused),
                            // The proxy waits, because the server is silent.
                            Err(Unreached::Silent) => continue,
                        }
                    };
                    let socket = self.network.sockets.get_mut(&id);
                    let session = socket.and_then(|socket| socket.proxy.as_mut());
                    if let Some((_, session)) = session {
                        let steps = session.connected(outcome);
                        self.perform_for_proxy(id, steps);
                    }
                }
            }
        }
    }

    /// Returns whether the connection's proxy refuses to connect to servers (`ProxyFault::Reject`).
    fn rejects(&self, id: u64) -> bool {
        let socket = self.network.sockets.get(&id);
        let address = socket.and_then(|socket| socket.proxy.as_ref());
        let proxy = address.and_then(|(address, _)| self.network.proxies.get(address));
        proxy.is_some_and(|proxy| proxy.fault == Some(ProxyFault::Reject))
    }

    fn arrive_at_server(&mut self, id: u64, bytes: &[u8]) {
        let Some(socket) = self.network.sockets.get_mut(&id) else {
            return;
        };
        let Some(connection) = socket.server else {
            return;
        };
        let member = self.deployment.member(connection.member);
        let received = socket.tls.receive(
            &Terms {
                tls: &self.network.tls,
                member: connection.member,
                host: member.address.host(),
                answers: member.answers(),
            },
            bytes,
        );
        if !received.send.is_empty() {
            self.transmit(id, Direction::ToClient, &received.send);
        }
        if !received.plain.is_empty() {
            self.trace.message(&received.plain);
            let now = self.now();
            let outputs = self.deployment.receive(now, connection, &received.plain);
            self.perform(outputs);
        }
        if received.close {
            self.deployment.closed(connection);
            self.close_for_client(id);
        }
    }

    /// Resumes handshakes that waited for a server process.
    pub(super) fn resume_handshakes(&mut self) {
        let sockets = self.network.sockets.iter();
        let waiting = sockets.filter_map(|(id, own)| own.tls.is_waiting().then_some(*id));
        for id in waiting.collect::<Vec<u64>>() {
            self.arrive_at_server(id, &[]);
        }
    }
}
