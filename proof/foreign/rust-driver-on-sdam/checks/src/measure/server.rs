//! Simulated servers in a separate process: hello, `ping`, `find`, and replies that are pushed on
//! request.
//!
//! All members share one listener; each has its own loopback address. As in real sets, replies have
//! a `$clusterTime`, but it does not advance.

mod replies;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use mongodb::bson::{Document, cstr, raw::CStr};
use sdam_testkit::reply_to;
use sdam_transport::wire::{OpMsg, WireMessage};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, stdin},
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
    time::{interval, sleep},
};

use crate::Result;

/// The field of a pushed reply that holds the time of the push, in nanoseconds since 1970.
pub const SENT_AT: &CStr = cstr!("sentAt");

/// The number of members whose addresses have the same third byte.
const PER_SUBNET: usize = 250;

/// The kind of a simulated deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    ReplicaSet,
    Sharded,
}

impl Kind {
    pub fn named(name: &str) -> Result<Self> {
        match name {
            "replica-set" => Ok(Self::ReplicaSet),
            "sharded" => Ok(Self::Sharded),
            _ => Err(format!("there is no deployment {name}").into()),
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::ReplicaSet => "replica-set",
            Self::Sharded => "sharded",
        }
    }
}

struct Deployment {
    kind: Kind,
    members: Vec<String>,
    /// The latest stream of each member, which sends a reply for each received counter.
    streams: Mutex<Vec<Option<mpsc::UnboundedSender<i64>>>>,
    /// The number of streams that were opened.
    opened: watch::Sender<usize>,
}

/// Prints the connection string, and executes commands from standard input: `push N MICROS` makes
/// the members push N replies in turn, with this pause before each, and then prints `done`.
pub fn run(kind: Kind, members: usize) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(kind, members))
}

async fn serve(kind: Kind, members: usize) -> Result<()> {
    let listener = TcpListener::bind("0.0.0.0:0").await?;
    let port = listener.local_addr()?.port();
    let host = |n: usize| format!("127.1.{}.{}:{port}", n / PER_SUBNET, n % PER_SUBNET + 1);
    let deployment = Arc::new(Deployment {
        kind,
        members: (0..members).map(host).collect(),
        streams: Mutex::new(vec![None; members]),
        opened: watch::Sender::new(0),
    });
    println!("{}", deployment.uri());
    tokio::spawn(accept(listener, Arc::clone(&deployment)));
    let mut lines = BufReader::new(stdin()).lines();
    let mut counter = 1;
    while let Some(line) = lines.next_line().await? {
        let mut words = line.split(' ').skip(1).map(str::parse);
        let (Some(number), Some(pause)) = (words.next(), words.next()) else {
            return Err(format!("not a command: {line}").into());
        };
        deployment.push(&mut counter, number?, Duration::from_micros(pause?)).await?;
        println!("done");
    }
    Ok(())
}

async fn accept(listener: TcpListener, deployment: Arc<Deployment>) {
    while let Ok((socket, _)) = listener.accept().await {
        let deployment = Arc::clone(&deployment);
        tokio::spawn(async move {
            // An error means that the client closed the connection.
            let _ = converse(socket, &deployment).await;
        });
    }
}

async fn converse(mut socket: TcpStream, deployment: &Deployment) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let index = index(socket.local_addr()?);
    loop {
        let request = read(&mut socket).await?;
        let command = Document::from_reader(request.body()).map_err(io::Error::other)?;
        if request.exhaust_allowed() {
            return stream(socket, deployment, index, request.request_id(), &command).await;
        }
        let body = deployment.reply(index, &command).into_bytes();
        let reply = reply_to(&request, &body).map_err(io::Error::other)?;
        socket.write_all(reply.as_bytes()).await?;
    }
}

/// Sends a reply after each `maxAwaitTimeMS`, and for each push.
async fn stream(
    mut socket: TcpStream,
    deployment: &Deployment,
    index: usize,
    mut answered: i32,
    command: &Document,
) -> io::Result<()> {
    let (sender, mut pushes) = mpsc::unbounded_channel();
    deployment.streams.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(sender);
    deployment.opened.send_modify(|opened| *opened += 1);
    let wait = command.get("maxAwaitTimeMS");
    let wait = wait.and_then(|wait| wait.as_i64().or_else(|| wait.as_i32().map(i64::from)));
    let wait = Duration::from_millis(wait.unwrap_or_default().unsigned_abs());
    let (mut reader, mut writer) = socket.split();
    let mut counter = 1;
    loop {
        let mut body = tokio::select! {
            Some(next) = pushes.recv() => {
                counter = next;
                let mut body = deployment.hello(index, counter);
                body.append(SENT_AT, now());
                body
            }
            () = sleep(wait) => deployment.hello(index, counter),
            _ = reader.read_u8() => return Ok(()),
        };
        body.append(cstr!("ok"), 1.0);
        let reply = OpMsg {
            request_id: answered + 1,
            response_to: answered,
            more_to_come: true,
            body: body.as_bytes(),
            ..OpMsg::default()
        };
        answered += 1;
        let reply = reply.encode().map_err(io::Error::other)?;
        writer.write_all(reply.as_bytes()).await?;
    }
}

async fn read(socket: &mut TcpStream) -> io::Result<WireMessage> {
    let mut bytes = vec![0; 16];
    socket.read_exact(&mut bytes).await?;
    let length = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    bytes.resize((length as usize).max(16), 0);
    socket.read_exact(&mut bytes[16..]).await?;
    WireMessage::decode(bytes).map_err(io::Error::other)
}

/// Returns the member with this address.
fn index(address: SocketAddr) -> usize {
    match address.ip() {
        IpAddr::V4(ip) => {
            let [_, _, subnet, host] = ip.octets();
            usize::from(subnet) * PER_SUBNET + usize::from(host).saturating_sub(1)
        }
        IpAddr::V6(_) => 0,
    }
}

/// Returns the time in nanoseconds since 1970, from a clock that all processes share.
pub fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_nanos() as i64)
}

impl Deployment {
    fn uri(&self) -> String {
        let hosts = self.members.join(",");
        match self.kind {
            Kind::ReplicaSet => format!("mongodb://{hosts}/?replicaSet=rs"),
            Kind::Sharded => format!("mongodb://{hosts}/"),
        }
    }

    async fn push(&self, counter: &mut i64, number: u64, pause: Duration) -> Result<()> {
        let members = self.members.len();
        let mut opened = self.opened.subscribe();
        opened.wait_for(|opened| *opened >= members).await?;
        let mut ticks = interval(pause);
        for _ in 0..number {
            ticks.tick().await;
            *counter += 1;
            let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
            let stream = streams[*counter as usize % members].as_ref();
            stream.ok_or("a member has no stream")?.send(*counter)?;
        }
        Ok(())
    }
}
