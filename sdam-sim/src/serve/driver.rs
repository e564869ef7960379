//! The thread that owns the deployment, and the threads that accept connections until they are
//! stopped.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    task::{Context, Wake, Waker},
    thread::{self, JoinHandle},
    time::Duration,
};

use sdam_core::{address::ServerAddress, time::Instant};
use sdam_transport::clock::{Clock, DeadlineTimer};

use super::{ServeError, Served};
use crate::{
    Cluster, ConnectionId, MemberId, Output, Outputs, action::Action, config::SetConfig,
    deployment::Status,
};

/// The listener of a member or of the load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ListenerId {
    Member(MemberId),
    Balancer,
}

/// A message to the driver thread.
#[derive(Debug)]
pub(super) enum Event {
    Accepted(ListenerId, TcpStream),
    Received(ConnectionId, Vec<u8>),
    Closed(ConnectionId),
    Apply(Action, Sender<Result<(), ServeError>>),
    Status(Sender<Status>),
    Config(Sender<Option<SetConfig>>),
    Connections(Sender<usize>),
    /// A deadline of the deployment has passed.
    Due,
    Stop,
}

/// The write timeout. A client that has not read anything for this long is disconnected.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);

struct Driver {
    deployment: Cluster,
    clock: Arc<dyn Clock>,
    /// The time of `clock` at which the deployment's time began.
    started: Instant,
    timer: DeadlineTimer,
    /// Sends [`Event::Due`].
    waker: Waker,
    /// The time spent on firing the deployment's timers. The deployment's clock does not count this
    /// time.
    busy: Duration,
    sender: Sender<Event>,
    addresses: BTreeMap<ListenerId, SocketAddr>,
    listeners: BTreeMap<ListenerId, Listener>,
    /// The ports of processes that are down.
    reserved: BTreeMap<ListenerId, Reserved>,
    sockets: BTreeMap<ConnectionId, Socket>,
    /// The mongos that the load balancer uses for the next connection.
    next_mongos: u16,
}

/// A connection and the thread that reads from it.
struct Socket {
    stream: TcpStream,
    reader: JoinHandle<()>,
}

/// Wakes the driver.
struct Alarm(Sender<Event>);

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        // An error means that the driver has stopped.
        let _ = self.0.send(Event::Due);
    }
}

/// Serves `deployment`. Member `n` listens on `listeners[n]`.
pub(super) fn start(
    deployment: Cluster,
    clock: Arc<dyn Clock>,
    listeners: Vec<TcpListener>,
    places: Box<[(ServerAddress, ServerAddress)]>,
    balanced: bool,
) -> Result<Served, ServeError> {
    let (sender, events) = mpsc::channel();
    let mut driver = Driver {
        started: clock.now(),
        clock,
        timer: DeadlineTimer::default(),
        waker: Arc::new(Alarm(sender.clone())).into(),
        busy: Duration::ZERO,
        sender: sender.clone(),
        addresses: BTreeMap::new(),
        listeners: BTreeMap::new(),
        reserved: BTreeMap::new(),
        sockets: BTreeMap::new(),
        next_mongos: 0,
        deployment,
    };
    for (index, listener) in listeners.into_iter().enumerate() {
        let id = if balanced {
            ListenerId::Balancer
        } else {
            ListenerId::Member(MemberId(index as u16))
        };
        driver.addresses.insert(id, listener.local_addr()?);
        driver.listen(id, listener)?;
    }
    let uri = driver.deployment.uri();
    let thread = thread::Builder::new()
        .name("simulated deployment".into())
        .spawn(move || driver.run(&events))?;
    Ok(Served { uri, places, events: sender, driver: Some(thread) })
}

impl Driver {
    fn run(mut self, events: &Receiver<Event>) {
        loop {
            let now = self.now();
            let outputs = self.deployment.advance(now);
            self.busy += self.now().since(now);
            // If a timer restarts a process and that fails, there is no caller to whom the error
            // could be reported.
            let _ = self.perform(outputs);
            match self.next_event(events) {
                Some(Event::Stop) => break,
                Some(event) => self.handle(event),
                None => {}
            }
        }
        self.stop();
    }

    /// Returns the deployment's time, which stands still while timers fire. On a machine that is
    /// too slow for the timers, time therefore passes more slowly. Otherwise, the deployment would
    /// fall further and further behind and would never handle an event.
    fn now(&self) -> Instant {
        Instant::EPOCH + self.clock.now().since(self.started).saturating_sub(self.busy)
    }

    /// Waits for an event or for the deployment's next deadline.
    fn next_event(&mut self, events: &Receiver<Event>) -> Option<Event> {
        let deadline = self.deployment.next_deadline();
        let deadline = deadline.map(|it| self.started + self.busy + it.since(Instant::EPOCH));
        let mut context = Context::from_waker(&self.waker);
        if self.timer.poll(&*self.clock, deadline, &mut context).is_ready() {
            return None;
        }
        Some(events.recv().unwrap_or(Event::Stop))
    }

    fn handle(&mut self, event: Event) {
        let now = self.now();
        match event {
            // If a connection cannot be set up, it is dropped, which closes it.
            Event::Accepted(id, stream) => drop(self.accept(id, stream)),
            Event::Received(connection, bytes) => {
                let outputs = self.deployment.receive(now, connection, &bytes);
                let _ = self.perform(outputs);
            }
            Event::Closed(connection) => {
                self.deployment.closed(connection);
                self.sockets.remove(&connection);
            }
            Event::Apply(action, reply) => {
                let done = match self.deployment.apply(now, &action) {
                    Ok(outputs) => self.perform(outputs).map_err(ServeError::Io),
                    Err(error) => Err(ServeError::Action(error)),
                };
                let _ = reply.send(done);
            }
            Event::Status(reply) => drop(reply.send(self.deployment.status())),
            Event::Config(reply) => drop(reply.send(self.deployment.config())),
            Event::Connections(reply) => drop(reply.send(self.sockets.len())),
            Event::Due | Event::Stop => {}
        }
    }

    fn listen(&mut self, id: ListenerId, listener: TcpListener) -> io::Result<()> {
        let listener = Listener::start(id, listener, self.sender.clone())?;
        self.listeners.insert(id, listener);
        Ok(())
    }

    fn accept(&mut self, id: ListenerId, stream: TcpStream) -> io::Result<()> {
        let Some(connection) = self.open(id) else {
            return Ok(());
        };
        let started = self.start_reader(connection, &stream);
        let reader = started.inspect_err(|_| self.deployment.closed(connection))?;
        self.sockets.insert(connection, Socket { stream, reader });
        Ok(())
    }

    fn open(&mut self, id: ListenerId) -> Option<ConnectionId> {
        match id {
            ListenerId::Member(member) => self.deployment.open(member),
            ListenerId::Balancer => {
                let mongoses = self.deployment.status().members.len() as u16;
                (0..mongoses).find_map(|_| {
                    let mongos = MemberId(self.next_mongos % mongoses);
                    self.next_mongos = (mongos.0 + 1) % mongoses;
                    self.deployment.open(mongos)
                })
            }
        }
    }

    fn start_reader(
        &self,
        connection: ConnectionId,
        stream: &TcpStream,
    ) -> io::Result<JoinHandle<()>> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        let mut stream = stream.try_clone()?;
        let events = self.sender.clone();
        thread::Builder::new().name("read".into()).stack_size(64 * 1024).spawn(move || {
            let mut buffer = [0; 16 * 1024];
            loop {
                let event = match stream.read(&mut buffer) {
                    Ok(read @ 1..) => Event::Received(connection, buffer[..read].to_vec()),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Ok(0) | Err(_) => Event::Closed(connection),
                };
                let last = matches!(event, Event::Closed(_));
                if events.send(event).is_err() || last {
                    return;
                }
            }
        })
    }

    /// Performs the outputs of the deployment.
    ///
    /// # Errors
    ///
    /// If the port of a process that is restarted is taken. The remaining outputs are performed
    /// anyway.
    fn perform(&mut self, outputs: Outputs) -> io::Result<()> {
        let mut result = Ok(());
        for output in outputs {
            match output {
                Output::Send { connection, bytes } => self.send(connection, &bytes),
                Output::Close { connection } => self.close(connection),
                Output::Down { member } => {
                    let id = ListenerId::Member(member);
                    let reserved = self.listeners.remove(&id).and_then(Listener::stop);
                    self.reserved.extend(reserved.map(|port| (id, port)));
                }
                Output::Up { member } => {
                    result = self.reopen(ListenerId::Member(member)).and(result);
                }
            }
        }
        result
    }

    fn send(&mut self, connection: ConnectionId, bytes: &[u8]) {
        let Some(socket) = self.sockets.get_mut(&connection) else {
            return;
        };
        if socket.stream.write_all(bytes).is_err() {
            self.deployment.closed(connection);
            self.close(connection);
        }
    }

    /// Closes the socket. Its reader thread then reports the end of the connection, and the driver
    /// removes the connection.
    fn close(&mut self, connection: ConnectionId) {
        if let Some(socket) = self.sockets.get(&connection) {
            // An error means that the client closed the connection first.
            let _ = socket.stream.shutdown(Shutdown::Both);
        }
    }

    /// Makes the listener `id` listen again. The load balancer never stops listening.
    fn reopen(&mut self, id: ListenerId) -> io::Result<()> {
        match self.addresses.get(&id) {
            Some(address) => {
                let listener = TcpListener::bind(address)?;
                self.reserved.remove(&id);
                self.listen(id, listener)
            }
            None => Ok(()),
        }
    }

    fn stop(self) {
        for (_, listener) in self.listeners {
            listener.stop();
        }
        for socket in self.sockets.values() {
            let _ = socket.stream.shutdown(Shutdown::Both);
        }
        for (_, socket) in self.sockets {
            let _ = socket.reader.join();
        }
    }
}

/// The time limit of connecting to a port of this process.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A bound port and the thread that accepts connections on it.
#[derive(Debug)]
struct Listener {
    address: SocketAddr,
    /// Relaxed accesses suffice, because no data is published through the flag.
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Option<TcpListener>>,
}

/// A port that refuses clients and that the system does not assign again. A connection of this
/// process to the port's former listener reserves the port. A new listener can still bind it.
#[derive(Debug)]
struct Reserved {
    _connection: [TcpStream; 2],
}

impl Listener {
    pub(super) fn start(
        id: ListenerId,
        listener: TcpListener,
        events: Sender<Event>,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread =
            thread::Builder::new().name(format!("accept {}", address.port())).spawn(move || {
                for stream in listener.incoming() {
                    if stopped.load(Ordering::Relaxed) {
                        break;
                    }
                    // A connection that failed before it was accepted is ignored.
                    if let Ok(stream) = stream
                        && events.send(Event::Accepted(id, stream)).is_err()
                    {
                        return None;
                    }
                }
                Some(listener)
            })?;
        Ok(Self { address, stop, thread })
    }

    /// Stops accepting connections. The port stays reserved while the result exists.
    fn stop(self) -> Option<Reserved> {
        self.stop.store(true, Ordering::Relaxed);
        let connect = || TcpStream::connect_timeout(&self.address, CONNECT_TIMEOUT).ok();
        // This connection unblocks the thread. If it cannot be opened, the listener is broken, and
        // joining the thread could block forever.
        connect()?;
        let listener = self.thread.join().ok()??;
        let client = connect()?;
        let own = client.local_addr().ok()?;
        let mut accepted = listener.incoming().map_while(Result::ok);
        // Closes the connections of clients that came before.
        let server = accepted.find(|stream| stream.peer_addr().is_ok_and(|peer| peer == own))?;
        Some(Reserved { _connection: [client, server] })
    }
}
