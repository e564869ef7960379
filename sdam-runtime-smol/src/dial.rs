//! The dialer, which connects sockets and looks up host names.

#[cfg(not(unix))]
use std::net::TcpStream as UnixStream;
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::{
    io,
    net::{SocketAddr, TcpStream},
};

use futures::future::Either;
use sdam_transport::{
    async_trait,
    dial::{Dial, DialOptions, DialTarget},
    stream::NonBlocking,
    system::tune_tcp,
};
use smol::{Async, net};

#[derive(Debug)]
pub(crate) struct SmolDial;

#[async_trait]
impl Dial for SmolDial {
    type Stream = Either<NonBlocking<Async<TcpStream>>, NonBlocking<Async<UnixStream>>>;

    async fn dial(&self, target: &DialTarget, options: DialOptions) -> io::Result<Self::Stream> {
        match target {
            DialTarget::Tcp(address) => {
                let stream = Async::<TcpStream>::connect(*address).await?;
                tune_tcp(&stream, options.user_timeout)?;
                Ok(Either::Left(NonBlocking(stream)))
            }
            #[cfg(unix)]
            DialTarget::Unix(path) => {
                let stream = Async::<UnixStream>::connect(path).await?;
                Ok(Either::Right(NonBlocking(stream)))
            }
            other => Err(other.unsupported()),
        }
    }

    async fn lookup_host(&self, host: &str) -> io::Result<Vec<SocketAddr>> {
        net::resolve((host, 0)).await
    }
}
