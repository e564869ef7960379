//! An HTTP/1 server for pages. It supports `GET` and `HEAD`, and answers `OPTIONS` like `GET`,
//! because HAProxy sends `OPTIONS` by default. It handles one request per connection, and limits
//! everything that a client sends. If too many connections are idle, a new one displaces the oldest
//! idle one.

#[cfg(test)]
mod tests;

use std::{
    borrow::Cow,
    cell::{Cell, RefCell},
    collections::VecDeque,
    convert::Infallible,
    future::{Future, pending, poll_fn},
    pin::{Pin, pin},
    rc::Rc,
    time::Duration,
};

use futures::{
    FutureExt, StreamExt,
    channel::oneshot,
    future::{join, select},
    select_biased,
    stream::FuturesUnordered,
};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Body, Bytes, Incoming},
    header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue},
    http::request::Parts,
    server::conn::http1,
    service::service_fn,
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use tokio::{
    net::TcpListener,
    task::yield_now,
    time::{sleep, timeout},
};

use crate::terminal::sanitize_lines;

/// The maximum length of the request line with all headers, in bytes.
pub const MAX_HEAD_LENGTH: usize = 8 * 1024;
/// The maximum number of connections that have not sent a complete request. If there are more, a
/// new connection displaces the oldest one.
pub const MAX_IDLE: usize = 256;
/// The maximum number of requests that are answered at the same time. Further requests are refused.
pub const MAX_ANSWERS: usize = 256;
/// The maximum number of connections at the same time. Further connections wait.
const MAX_CONNECTIONS: usize = 1024;
/// The time limit for receiving the head of a request.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// The time limit for a complete exchange, no matter which side is slow.
const TIMEOUT: Duration = Duration::from_secs(15);
/// The time limit for exchanges in progress when the server stops.
const GRACE: Duration = Duration::from_secs(2);
/// The pause after a failed accept, for instance when no file descriptors are left.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);
/// The maximum number of bytes of a request's body that are read and discarded.
const MAX_BODY_LENGTH: usize = 64 * 1024;

/// The path of the liveness check. A request for it is answered even if too many other requests are
/// being answered, because a supervisor restarts a program whose liveness check fails.
pub const HEALTHY: &str = "/-/healthy";

/// Accepts connections on `listener` and answers their requests with `answer` until `stop` is
/// ready. Then exchanges in progress may take two more seconds.
///
/// A client that sends nothing, or that reads slowly, does not make other clients wait.
///
/// # Cancel safety
///
/// Dropping the future closes all connections.
pub async fn serve<A>(listener: TcpListener, answer: A, stop: impl Future<Output = ()>)
where
    A: AsyncFn(&Parts) -> Response<String>,
{
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD_LENGTH)
        .keep_alive(false)
        // Some clients shut down their sending side after the request, but still read the answer.
        .half_close(true);
    let graceful = GracefulShutdown::new();
    let crowd = Crowd::default();
    let mut connections = FuturesUnordered::new();
    let (answer, crowd) = (&answer, &crowd);
    let mut stop = pin!(stop.fuse());
    loop {
        let has_room = connections.len() < MAX_CONNECTIONS;
        let accepted = async { if has_room { listener.accept().await } else { pending().await } };
        select_biased! {
            () = stop => break,
            () = connections.select_next_some() => {}
            accepted = pin!(accepted.fuse()) => match accepted {
                Ok((stream, _)) => {
                    let (visit, displaced) = crowd.enter();
                    let visit = Rc::new(visit);
                    let visiting = Rc::clone(&visit);
                    let service = service_fn(move |request| {
                        let visit = Rc::clone(&visiting);
                        async move {
                            Ok::<_, Infallible>(respond(request, &visit, answer).await)
                        }
                    });
                    let connection = server.serve_connection(TokioIo::new(stream), service);
                    let connection = graceful.watch(connection);
                    connections.push(async move {
                        // Ignore the error, which means that the client has disconnected or is too
                        // slow.
                        let _ = select(pin!(timeout(TIMEOUT, connection)), pin!(displaced)).await;
                        drop(visit);
                    });
                    // Let other tasks read requests that have arrived, so that their connections
                    // are no longer idle.
                    yield_now().await;
                }
                Err(_) => sleep(ACCEPT_BACKOFF).await,
            },
        }
    }
    drop(listener);
    let ended = join(graceful.shutdown(), connections.collect::<()>());
    let _ = timeout(GRACE, ended).await;
}

/// Creates a page with the given status, in plain text.
pub fn text(status: StatusCode, body: impl Into<String>) -> Response<String> {
    typed(status, "text/plain; charset=utf-8", sanitize_lines(&body.into()))
}

/// Creates a page with the given status and content type.
pub fn typed(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<String>,
) -> Response<String> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Creates a page whose text is only the status.
pub fn status(status: StatusCode) -> Response<String> {
    text(status, format!("{status}\n"))
}

/// Returns the decoded names and values of the parameters in a request's query, in order.
pub fn parameters(request: &Parts) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    form_urlencoded::parse(request.uri.query().unwrap_or_default().as_bytes())
}

async fn respond<A>(request: Request<Incoming>, visit: &Visit<'_>, answer: &A) -> Response<String>
where
    A: AsyncFn(&Parts) -> Response<String>,
{
    let (head, body) = request.into_parts();
    let has_room = visit.ask();
    if !has_room && head.uri.path() != HEALTHY {
        return text(StatusCode::SERVICE_UNAVAILABLE, "too many requests at a time\n");
    }
    if matches!(head.method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return answer(&head).await;
    }
    discard(body).await;
    let mut refusal = status(StatusCode::METHOD_NOT_ALLOWED);
    let allowed = HeaderValue::from_static("GET, HEAD, OPTIONS");
    refusal.headers_mut().insert(ALLOW, allowed);
    refusal
}

/// Reads and discards a body. Without this, closing the connection while bytes are unread would
/// reset it, and the client might lose the answer.
async fn discard(mut body: Incoming) {
    let mut length = 0;
    while length < MAX_BODY_LENGTH {
        match poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            Some(Ok(frame)) => length += frame.data_ref().map_or(0, Bytes::len),
            Some(Err(_)) | None => return,
        }
    }
}

/// The open connections.
#[derive(Debug, Default)]
struct Crowd {
    /// The connections whose request is not complete yet, oldest first.
    idle: RefCell<VecDeque<(u64, oneshot::Sender<()>)>>,
    entered: Cell<u64>,
    /// The number of requests that are being answered.
    answers: Cell<usize>,
}

/// Represents an open connection; dropping the value removes the connection from the crowd.
#[derive(Debug)]
struct Visit<'c> {
    crowd: &'c Crowd,
    number: u64,
    is_answered: Cell<bool>,
}

impl Crowd {
    /// Adds a connection. The returned future resolves when a newer connection displaces it.
    fn enter(&self) -> (Visit<'_>, impl Future<Output = ()> + use<>) {
        let (displace, displaced) = oneshot::channel();
        let number = self.entered.replace(self.entered.get() + 1);
        let mut idle = self.idle.borrow_mut();
        if idle.len() >= MAX_IDLE
            && let Some((_, oldest)) = idle.pop_front()
        {
            // Ignore the error, because sending fails only if the oldest connection has just ended.
            let _ = oldest.send(());
        }
        idle.push_back((number, displace));
        let displaced = async {
            if displaced.await.is_err() {
                pending::<()>().await;
            }
        };
        (Visit { crowd: self, number, is_answered: Cell::new(false) }, displaced)
    }
}

impl Visit<'_> {
    /// Marks this connection's request as being answered, so the connection is no longer idle.
    /// Returns false if too many other requests are being answered.
    fn ask(&self) -> bool {
        if !self.is_answered.get() {
            self.leave_idle();
            let answers = self.crowd.answers.get();
            let has_room = answers < MAX_ANSWERS;
            self.crowd.answers.set(answers + usize::from(has_room));
            self.is_answered.set(has_room);
        }
        self.is_answered.get()
    }

    fn leave_idle(&self) {
        let mut idle = self.crowd.idle.borrow_mut();
        if let Ok(place) = idle.binary_search_by_key(&self.number, |(number, _)| *number) {
            drop(idle.remove(place));
        }
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.leave_idle();
        if self.is_answered.get() {
            self.crowd.answers.set(self.crowd.answers.get() - 1);
        }
    }
}
