//! Connections over the simulated network.

use std::{future::pending, io, net::SocketAddr, sync::Arc};

use sdam_core::address::ServerAddress;
use sdam_transport::{
    async_trait,
    dial::{Dial, DialOptions, DialTarget},
};

use super::{Shared, clock::Sleep, dns, state::Unreached, stream::SimStream};

/// The dialer of the simulated network.
#[derive(Debug)]
pub(super) struct SimDial(pub(super) Arc<Shared>);

impl SimDial {
    /// Waits for the one-way latency of the network.
    async fn one_way(&self) {
        let deadline = {
            let mut state = self.0.state();
            state.now() + state.one_way()
        };
        Sleep::new(Arc::clone(&self.0), deadline).await;
    }
}

#[async_trait]
impl Dial for SimDial {
    type Stream = SimStream;

    async fn dial(&self, target: &DialTarget, _: DialOptions) -> io::Result<SimStream> {
        let DialTarget::Tcp(target) = target else {
            return Err(target.unsupported());
        };
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let address = {
            let state = self.0.state();
            let host = state.network.host_at(target.ip()).ok_or_else(refused)?;
            ServerAddress::new(host, target.port())
        };
        self.one_way().await;
        let attempt = self.0.state().accept(&address);
        match attempt {
            Err(Unreached::Silent) => pending().await,
            Err(Unreached::Refused | Unreached::Nowhere) => {
                self.one_way().await;
                Err(refused())
            }
            Ok(socket) => {
                let stream = SimStream::new(Arc::clone(&self.0), socket);
                self.one_way().await;
                // The network may have failed while the reply was in transit.
                if self.0.state().is_silent(&address) {
                    return pending().await;
                }
                Ok(stream)
            }
        }
    }

    async fn lookup_host(&self, host: &str) -> io::Result<Vec<SocketAddr>> {
        let found = dns::look_up(&self.0, host).await;
        found.map_err(|refusal| refusal.of_host(host))?;
        Ok(vec![SocketAddr::new(self.0.state().network.ip_of(host), 0)])
    }
}
