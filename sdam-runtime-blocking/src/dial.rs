//! The dialer, which connects sockets and looks up host names.

use std::{
    io,
    net::{SocketAddr, TcpStream, ToSocketAddrs as _},
};

use sdam_core::time::Instant;
use sdam_transport::{
    async_trait,
    dial::{Dial, DialOptions, DialTarget},
    system::{Epoch, tune_tcp},
};

use crate::socket::BlockingStream;

#[derive(Debug)]
pub(crate) struct BlockingDial {
    pub(crate) epoch: Epoch,
}

impl BlockingDial {
    fn connect(&self, address: &SocketAddr, deadline: Option<Instant>) -> io::Result<TcpStream> {
        let Some(deadline) = deadline else {
            return TcpStream::connect(address);
        };
        let left = self.epoch.until(deadline);
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        TcpStream::connect_timeout(address, left)
    }
}

#[async_trait]
impl Dial for BlockingDial {
    type Stream = BlockingStream;

    async fn dial(&self, target: &DialTarget, options: DialOptions) -> io::Result<BlockingStream> {
        match target {
            DialTarget::Tcp(address) => {
                let stream = self.connect(address, options.deadline)?;
                tune_tcp(&stream, options.user_timeout)?;
                Ok(BlockingStream::new(stream, self.epoch))
            }
            #[cfg(unix)]
            DialTarget::Unix(path) => {
                let stream = std::os::unix::net::UnixStream::connect(path)?;
                Ok(BlockingStream::new(stream, self.epoch))
            }
            other => Err(other.unsupported()),
        }
    }

    async fn lookup_host(&self, host: &str) -> io::Result<Vec<SocketAddr>> {
        Ok((host, 0).to_socket_addrs()?.collect())
    }

    fn blocks(&self) -> bool {
        true
    }
}
