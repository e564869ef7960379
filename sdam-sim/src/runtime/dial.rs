//! Connecting over the simulated network.

use std::{io, net::IpAddr, sync::Arc};

use async_trait::async_trait;
use sdam_core::{address::ServerAddress, time::Instant};
use sdam_transport::dial::{Dial, DialTarget};

use super::{Shared, clock::Sleep, stream::SimStream, world::Attempt};

/// The dialer of the simulated network.
#[derive(Debug)]
pub(super) struct SimDial(Arc<Shared>);

impl SimDial {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self(shared)
    }

    /// Waits for the latency of one way through the network.
    async fn travel(&self) {
        let deadline = {
            let mut world = self.0.world();
            world.now() + world.travel()
        };
        Sleep::new(Arc::clone(&self.0), deadline).await;
    }
}

#[async_trait]
impl Dial for SimDial {
    type Stream = SimStream;

    async fn dial(&self, target: &DialTarget, _: Option<Instant>) -> io::Result<SimStream> {
        let DialTarget::Tcp(target) = target else {
            return Err(target.unsupported());
        };
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let address = {
            let world = self.0.world();
            let host = world.network.host_at(target.ip()).ok_or_else(refused)?;
            ServerAddress::new(host, target.port())
        };
        self.travel().await;
        let attempt = self.0.world().accept(&address);
        match attempt {
            Attempt::Silent => {
                Silence {
                    shared: Arc::clone(&self.0),
                }
                .forever()
                .await
            }
            Attempt::Refused => {
                self.travel().await;
                Err(refused())
            }
            Attempt::Open(link) => {
                let stream = SimStream::new(Arc::clone(&self.0), link);
                self.travel().await;
                // The network may have failed while the reply was in transit.
                if self.0.world().is_silent(&address) {
                    Silence {
                        shared: Arc::clone(&self.0),
                    }
                    .forever()
                    .await
                } else {
                    Ok(stream)
                }
            }
        }
    }

    async fn lookup_ip(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let (delay, deadline) = {
            let world = self.0.world();
            let delay = world.network.dns;
            (delay, world.now() + delay.unwrap_or_default())
        };
        Sleep::new(Arc::clone(&self.0), deadline).await;
        if delay.is_none() {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("no address for {host}"),
            ));
        }
        Ok(vec![self.0.world().network.ip_of(host)])
    }
}

/// A connection attempt without a reply.
struct Silence {
    shared: Arc<Shared>,
}

impl Silence {
    async fn forever<T>(self) -> T {
        let _shared = self.shared;
        std::future::pending().await
    }
}
