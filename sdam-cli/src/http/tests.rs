use std::net::SocketAddr;

use futures::channel::oneshot;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::Notify,
    time::Instant,
};

use super::*;

/// The path of a page that waits until the test notifies it.
const SLOW: &str = "/slow";

/// Calls `client` with the address of a server whose pages show the requested path.
/// The clock is virtual, and advances whenever all tasks are waiting.
fn with_server<T>(client: impl AsyncFnOnce(SocketAddr) -> T) -> T {
    with(true, &Notify::new(), client)
}

fn with<T>(is_paused: bool, slow: &Notify, client: impl AsyncFnOnce(SocketAddr) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(is_paused)
        .build()
        .unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let page = async |request: &Parts| {
            if request.uri.path() == SLOW {
                slow.notified().await;
            }
            text(StatusCode::OK, request.uri.path())
        };
        let (stop, stopped) = oneshot::channel();
        let served = serve(listener, page, async {
            let _ = stopped.await;
        });
        let client = async {
            let result = client(address).await;
            stop.send(()).unwrap();
            result
        };
        join(client, served).await.0
    })
}

async fn read(mut stream: TcpStream) -> String {
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    reply
}

/// Sends a request in several `parts`, and returns the answer.
fn talk(parts: &[&[u8]]) -> String {
    with_server(async |address| {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        for part in parts {
            stream.write_all(part).await.unwrap();
            tokio::task::yield_now().await;
        }
        stream.shutdown().await.unwrap();
        read(stream).await
    })
}

fn check(parts: &[&[u8]], status: &str, body: &str) {
    let reply = talk(parts);
    let status = format!("HTTP/1.1 {status}\r\n");
    assert!(reply.starts_with(&status), "{reply}");
    assert!(reply.ends_with(&format!("\r\n\r\n{body}")), "{reply}");
}

#[test]
fn a_post_is_refused_after_its_body_was_read() {
    let body = [b'x'; 4096];
    let post = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4096\r\n\r\n";
    let status = "405 Method Not Allowed";
    check(&[post, &body], status, &format!("{status}\n"));
    assert!(talk(&[post, &body]).contains("\r\nallow: GET, HEAD, OPTIONS\r\n"));
}

#[test]
fn invalid_requests_are_refused() {
    for line in ["GET /", "GET / HTTP/1.1 x", "GET / 1", "GET /\u{7f} HTTP/1.1"] {
        let head = format!("{line}\r\nHost: h\r\n\r\n");
        check(&[head.as_bytes()], "400 Bad Request", "");
    }
    let line = [b'a'; 1024];
    let mut parts: Vec<&[u8]> = vec![b"GET / HTTP/1.1\r\nHost: h\r\nA: "];
    parts.extend([&line[..]; 7]);
    parts.extend([&line[..1000]]);
    check(&parts, "431 Request Header Fields Too Large", "");
    assert_eq!(talk(&[]), "");
}

#[test]
fn responses_have_a_length_and_close_the_connection() {
    let reply = talk(&[b"GET /\xc3\xa9 HTTP/1.1\r\nHost: h\r\n\r\n"]);
    let headers = reply.split("\r\n\r\n").next().unwrap();
    for header in [
        "content-type: text/plain; charset=utf-8",
        "content-length: 3",
        "cache-control: no-store",
        "connection: close",
    ] {
        assert!(headers.contains(header), "{reply}");
    }
}

#[test]
fn a_client_that_sends_no_request_is_disconnected() {
    with_server(async |address| {
        let start = Instant::now();
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        assert_eq!(read(stream).await, "");
        assert!(start.elapsed() >= HEAD_TIMEOUT);
    });
}

#[test]
fn clients_that_send_nothing_yield_to_new_ones() {
    with_server(async |address| {
        let start = Instant::now();
        let mut idle = Vec::new();
        for _ in 0..4 * MAX_IDLE {
            idle.push(TcpStream::connect(address).await.unwrap());
        }
        assert!(request(address, "/").await.ends_with("\r\n\r\n/"));
        assert!(start.elapsed() < HEAD_TIMEOUT);
        // The oldest connection has been closed, and the newest one can still be used.
        assert_eq!(read(idle.remove(0)).await, "");
        let mut last = idle.pop().unwrap();
        last.write_all(b"GET /late HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
        assert!(read(last).await.ends_with("/late"));
        assert!(start.elapsed() < HEAD_TIMEOUT);
    });
}

#[test]
fn health_is_answered_while_all_others_wait() {
    let slow = Notify::new();
    with(false, &slow, async |address| {
        let waiting = (0..MAX_ANSWERS).map(|_| request(address, SLOW));
        let waiting: FuturesUnordered<_> = waiting.collect();
        let others = async {
            while !request(address, "/").await.starts_with("HTTP/1.1 503 ") {}
            assert!(request(address, HEALTHY).await.starts_with("HTTP/1.1 200 "));
            slow.notify_waiters();
        };
        let (answers, ()) = join(waiting.collect::<Vec<_>>(), others).await;
        assert!(answers.iter().all(|answer| answer.starts_with("HTTP/1.1 200 ")));
        assert!(request(address, "/").await.starts_with("HTTP/1.1 200 "));
    });
}

async fn request(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    read(stream).await
}
