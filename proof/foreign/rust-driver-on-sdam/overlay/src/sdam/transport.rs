//! The driver's sockets, with TLS and proxies, as the transport of monitors.

use ::sdam::{
    Connection, Error, Instant, Transport, async_trait,
    transport::{framed::Framed, stream::NonBlocking},
};
use derive_where::derive_where;
use tokio_util::compat::TokioAsyncReadCompatExt;

use super::{convert, error};
use crate::cmap::establish::ConnectionEstablisher;

/// Opens the connections of monitors.
#[derive_where(Debug)]
pub(crate) struct DriverTransport {
    #[derive_where(skip)]
    pub(crate) establisher: ConnectionEstablisher,
    /// True if a test has disabled monitoring.
    pub(crate) disabled: bool,
}

#[async_trait]
impl Transport for DriverTransport {
    async fn connect(
        &self,
        target: &::sdam::ServerAddress,
        _: Option<Instant>,
    ) -> Result<Box<dyn Connection>, Error> {
        if self.disabled {
            std::future::pending::<()>().await;
        }
        // The establisher enforces the same time limit, `connect_timeout`.
        let stream = self.establisher.make_stream(convert::driver_address(target));
        let stream = stream.await.map_err(error::of_connecting)?;
        Ok(Box::new(Framed::new(NonBlocking(stream.compat())).with_target(target)))
    }
}
