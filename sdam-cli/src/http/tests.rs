use futures::future::join;
use tokio::io::duplex;

use super::*;

const HOST: &str = "Host: h\r\n\r\n";

/// Method, path and parameters.
type Parts<'a> = (Method, &'a str, Vec<(&'a str, &'a str)>);

fn parse(head: &str) -> Result<Parts<'_>, Status> {
    let request = Request::parse(head.as_bytes())?;
    Ok((request.method, request.path, request.parameters().collect()))
}

#[test]
fn requests_are_read_in_both_forms() {
    let check = |line: &str, expected: (Method, &str, &[(&str, &str)])| {
        let head = format!("{line}\r\nAccept: */*\r\n{HOST}");
        let (method, path, parameters) = parse(&head).unwrap();
        assert_eq!((method, path, &*parameters), expected, "{line}");
    };
    check("GET / HTTP/1.1", (Method::Get, "/", &[]));
    check("HEAD /a/b? HTTP/1.0", (Method::Head, "/a/b", &[]));
    check(
        "GET /a?b=c&&d&e== HTTP/1.1",
        (Method::Get, "/a", &[("b", "c"), ("d", ""), ("e", "=")]),
    );
    check(
        "GET http://h:1/a?b=c HTTP/1.1",
        (Method::Get, "/a", &[("b", "c")]),
    );
    check("GET http://h HTTP/1.1", (Method::Get, "/", &[]));
}

#[test]
fn every_kind_of_invalid_request_has_its_own_status() {
    let check = |head: &str, expected: Status| {
        assert_eq!(parse(head), Err(expected), "{head}");
    };
    check(
        &format!("POST / HTTP/1.1\r\n{HOST}"),
        Status::METHOD_NOT_ALLOWED,
    );
    check(
        &format!("get / HTTP/1.1\r\n{HOST}"),
        Status::METHOD_NOT_ALLOWED,
    );
    check(
        &format!("GET / HTTP/2.0\r\n{HOST}"),
        Status::VERSION_NOT_SUPPORTED,
    );
    for line in [
        "",
        "GET /",
        "GET / HTTP/1.1 ",
        "GET  / HTTP/1.1",
        "GET * HTTP/1.1",
        "GET / 1",
    ] {
        check(&format!("{line}\r\n{HOST}"), Status::BAD_REQUEST);
    }
    check("GET / HTTP/1.1\r\n\r\n", Status::BAD_REQUEST);
    check(
        &format!("GET / HTTP/1.1\r\nhOsT: a\r\n{HOST}"),
        Status::BAD_REQUEST,
    );
    assert_eq!(
        Request::parse(b"GET /\xff HTTP/1.0\r\n\r\n"),
        Err(Status::BAD_REQUEST)
    );
}

#[test]
fn responses_have_content_length_and_close_the_connection() {
    let response = Response::text(Status::OK, "e\u{301}\n");
    let text = String::from_utf8(response.encode(Method::Get)).unwrap();
    assert_eq!(
        text,
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 4\r\n\
         Cache-Control: no-store\r\nConnection: close\r\n\r\ne\u{301}\n"
    );
    let head = String::from_utf8(response.encode(Method::Head)).unwrap();
    assert_eq!(Some(&*head), text.strip_suffix("e\u{301}\n"));
    let refusal = Response::of(Status::METHOD_NOT_ALLOWED).encode(Method::Get);
    let refusal = String::from_utf8(refusal).unwrap();
    assert!(refusal.contains("\r\nAllow: GET, HEAD\r\n"), "{refusal}");
}

/// Returns the answer to `parts`, which are sent one by one through a pipe with a small buffer.
fn talk(parts: &[&[u8]]) -> String {
    let (mut client, server) = duplex(16);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let answer = |request: &Request<'_>| Response::text(Status::OK, request.path);
    let ask = async move {
        let (mut reader, mut writer) = tokio::io::split(&mut client);
        let send = async {
            for part in parts {
                writer.write_all(part).await.unwrap();
            }
            writer.shutdown().await.unwrap();
        };
        let mut reply = String::new();
        let ((), read) = join(send, reader.read_to_string(&mut reply)).await;
        read.unwrap();
        reply
    };
    let (reply, result) = runtime.block_on(join(ask, exchange(server, answer)));
    result.unwrap();
    reply
}

#[test]
fn requests_may_arrive_in_pieces() {
    let check = |parts: &[&[u8]], status: &str, body: &str| {
        let reply = talk(parts);
        assert!(
            reply.starts_with(&format!("HTTP/1.1 {status}\r\n")),
            "{reply}"
        );
        assert!(reply.ends_with(&format!("\r\n\r\n{body}")), "{reply}");
    };
    let request = b"GET /page HTTP/1.1\r\nHost: h\r\n\r\n";
    check(&[request], "200 OK", "/page");
    let bytes: Vec<&[u8]> = request.chunks(1).collect();
    check(&bytes, "200 OK", "/page");
    // An unread request body does not cost the client its answer.
    let body = [b'x'; 4096];
    let post = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4096\r\n\r\n";
    let status = "405 Method Not Allowed";
    check(&[post, &body], status, &format!("{status}\n"));
}

#[test]
fn a_request_head_over_the_limit_is_refused() {
    let line = [b'a'; 1024];
    let mut parts: Vec<&[u8]> = vec![b"GET / HTTP/1.1\r\nA: "];
    parts.extend([&line[..]; 16]);
    let reply = talk(&parts);
    let status = "HTTP/1.1 431 Request Header Fields Too Large\r\n";
    assert!(reply.starts_with(status), "{reply}");
}

#[test]
fn a_connection_without_a_request_gets_no_response() {
    assert_eq!(talk(&[]), "");
}
