//! A host that vanishes while it receives a command that has no time limit.

use std::io::Write as _;

use sdam::Options;
use socket2::{SockFilter, SockRef};

use super::*;
use crate::hostile::{message, mongos, read_request, start};

/// Answers each message. Before the reply to a `ping`, the host vanishes from the connection: from
/// then on, it acknowledges no data.
fn vanish_at_ping(request: i32, stream: &mut TcpStream) {
    let mut next = Some((request, Vec::new()));
    while let Some((request, sent)) = next {
        if sent.windows(4).any(|word| word == b"ping") {
            // The filter instruction returns 0 as the number of bytes to keep, so all received data
            // is dropped.
            let nothing = SockFilter::new(0x06, 0, 0, 0);
            SockRef::from(&*stream).attach_filter(&[nothing]).unwrap();
        }
        stream.write_all(&message(request, &mongos())).unwrap();
        next = read_request(stream);
    }
}

fn options() -> Options {
    let mut options = Options::parse(&format!("mongodb://{}/", start(vanish_at_ping))).unwrap();
    options.tcp_user_timeout = Some(Duration::from_millis(100));
    options
}

/// Runs a small command, which succeeds, and a command that does not fit into the socket's buffers.
async fn commands(pool: &Pool) -> [Result<(), Error>; 2] {
    let mut connection = pool.check_out().await.unwrap();
    let mut run = async |command: RawDocumentBuf| {
        let reply = connection.run_command(command.as_bytes(), None).await;
        reply.map(drop)
    };
    [
        run(rawdoc! { "ping": 1, "$db": "admin" }).await,
        run(rawdoc! { "ping": 1, "$db": "admin", "comment": "x".repeat(12 << 20) }).await,
    ]
}

fn check([first, second]: [Result<(), Error>; 2]) {
    first.unwrap();
    let error = second.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Network, "{error:#}");
    assert_eq!(error.outcome(), Some(ErrorOutcome::Cleared), "{error:#}");
    let text = format!("{error:#}");
    assert!(text.contains("os error 110"), "{text}");
}

#[test]
fn a_pooled_connection_breaks_after_the_user_timeout_on_every_runtime() {
    on_every_runtime(|runtime: Runtime| {
        let options = options();
        let topology = TopologyBuilder::new(options).pools(Pools::new()).start(runtime).unwrap();
        block_on(async {
            let server = topology.select(&Criteria::write()).await.unwrap();
            check(commands(server.pool()).await);
            topology.close().await;
        });
    });
    let options = options();
    let builder = TopologyBuilder::new(options).pools(Pools::new());
    let mut topology = builder.scan(sdam_runtime_blocking::backend()).unwrap();
    block_on(async {
        let server = topology.select(&Criteria::write()).await.unwrap();
        check(commands(server.pool()).await);
    });
}
