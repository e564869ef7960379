//! The dialer, which connects sockets and looks up host names.

use std::{io, net::SocketAddr};

#[cfg(not(unix))]
use async_std::net::TcpStream as UnixStream;
use async_std::net::{TcpStream, ToSocketAddrs as _};
#[cfg(unix)]
use async_std::os::unix::net::UnixStream;
use futures::future::Either;
use sdam_transport::{
    async_trait,
    dial::{Dial, DialOptions, DialTarget},
    stream::NonBlocking,
    system::tune_tcp,
};

#[derive(Debug)]
pub(crate) struct AsyncStdDial;

#[async_trait]
impl Dial for AsyncStdDial {
    type Stream = Either<NonBlocking<TcpStream>, NonBlocking<UnixStream>>;

    async fn dial(&self, target: &DialTarget, options: DialOptions) -> io::Result<Self::Stream> {
        match target {
            DialTarget::Tcp(address) => {
                let stream = TcpStream::connect(*address).await?;
                tune_tcp(&stream, options.user_timeout)?;
                Ok(Either::Left(NonBlocking(stream)))
            }
            #[cfg(unix)]
            DialTarget::Unix(path) => {
                let stream = UnixStream::connect(path).await?;
                Ok(Either::Right(NonBlocking(stream)))
            }
            other => Err(other.unsupported()),
        }
    }

    async fn lookup_host(&self, host: &str) -> io::Result<Vec<SocketAddr>> {
        Ok((host, 0).to_socket_addrs().await?.collect())
    }
}
