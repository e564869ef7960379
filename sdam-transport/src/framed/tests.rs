use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    task::{Context, Poll},
};

use futures::{
    FutureExt as _,
    io::{AsyncRead, AsyncWrite},
};
use sdam_core::error::ErrorKind;

use super::*;
use crate::{connect::Line, wire::OpMsg};

/// The result of a stream's next read or write. After the last step, reads and writes stay pending
/// forever.
#[derive(Debug)]
enum Step {
    Bytes(Vec<u8>),
    Pending,
    Eof,
    Fail(io::ErrorKind),
    /// The server refuses the client's certificate after the handshake.
    Refuse,
    /// Accepts this many bytes of a write.
    Take(usize),
}

#[derive(Debug, Default)]
struct Script {
    steps: VecDeque<Step>,
    written: Vec<u8>,
}

impl AsyncRead for Script {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        space: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        match self.steps.pop_front() {
            Some(Step::Bytes(mut bytes)) => {
                let read = bytes.len().min(space.len());
                space[..read].copy_from_slice(&bytes[..read]);
                let rest = bytes.split_off(read);
                if !rest.is_empty() {
                    self.steps.push_front(Step::Bytes(rest));
                }
                Poll::Ready(Ok(read))
            }
            Some(Step::Eof) => Poll::Ready(Ok(0)),
            Some(Step::Fail(kind)) => Poll::Ready(Err(kind.into())),
            Some(Step::Refuse) => {
                Poll::Ready(Err(io::Error::other(Error::network(Stage::Tls, "refused"))))
            }
            None | Some(Step::Pending | Step::Take(_)) => Poll::Pending,
        }
    }
}

impl AsyncWrite for Script {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.steps.pop_front() {
            Some(Step::Take(most)) => {
                let taken = most.min(bytes.len());
                self.written.extend(&bytes[..taken]);
                Poll::Ready(Ok(taken))
            }
            Some(Step::Fail(kind)) => Poll::Ready(Err(kind.into())),
            _ => Poll::Pending,
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl ByteStream for Script {}

fn framed(steps: impl IntoIterator<Item = Step>) -> Framed<Script> {
    Framed::new(Script { steps: steps.into_iter().collect(), ..Script::default() })
}

/// Returns a message with the id `request_id` that is `padding` bytes longer than the minimum.
fn message(request_id: i32, padding: usize) -> WireMessage {
    let mut body = vec![0; 5 + padding];
    body[..4].copy_from_slice(&(5 + padding as i32).to_le_bytes());
    let message = OpMsg { request_id, body: &body, ..OpMsg::default() };
    message.encode().unwrap()
}

fn bytes(request_id: i32) -> Vec<u8> {
    message(request_id, 0).into_bytes()
}

/// Returns the immediate result of `recv`.
fn recv(framed: &mut Framed<Script>) -> Result<WireMessage, Error> {
    framed.recv().now_or_never().expect("the receive was not pending")
}

#[track_caller]
fn refused(framed: &mut Framed<Script>, kind: ErrorKind, words: &str) {
    let error = recv(framed).unwrap_err();
    assert_eq!(error.kind(), kind);
    assert!(error.message().contains(words), "{error:#}");
}

#[test]
fn messages_arrive_whole_however_the_bytes_are_split() {
    let stream: Vec<u8> = [bytes(1), message(2, 5000).into_bytes(), bytes(3)].concat();
    for chunk in [1, 7, 16, 26, 27, 4096, stream.len()] {
        let chunks = stream.chunks(chunk).map(|chunk| Step::Bytes(chunk.to_vec()));
        let mut framed = framed(chunks);
        for (request_id, padding) in [(1, 0), (2, 5000), (3, 0)] {
            assert_eq!(recv(&mut framed).unwrap(), message(request_id, padding), "{chunk}");
        }
    }
}

#[test]
fn an_announced_length_is_checked_before_anything_is_allocated_o_36() {
    let limit = bytes(1).len();
    for (length, is_accepted) in [(limit, true), (limit + 1, false)] {
        let mut framed = framed([Step::Bytes(message(1, length - limit).into_bytes())]);
        framed.set_max_message_size(limit);
        assert_eq!(recv(&mut framed).is_ok(), is_accepted);
    }
    let mut greeting = framed([Step::Bytes(b"HTTP/1.1 400 Bad Request\r\n".to_vec())]);
    refused(&mut greeting, ErrorKind::Protocol, "more than the 48000000 accepted");
    assert!(greeting.received.capacity() <= 2 * READ_AHEAD);
}

#[test]
fn memory_grows_with_received_bytes_and_not_with_the_announced_length() {
    let mut start = bytes(1);
    start[..4].copy_from_slice(&48_000_000_i32.to_le_bytes());
    let arrived = 100 << 10;
    start.resize(arrived, 0);
    let mut waiting = framed([Step::Bytes(start)]);
    assert!(waiting.recv().now_or_never().is_none());
    assert!(waiting.received.len() >= arrived);
    assert!(waiting.received.capacity() <= 2 * (arrived + MAX_READ));
}

#[test]
fn a_failed_connection_stays_failed_and_names_the_server_and_the_cause_in_one_line() {
    let address = ServerAddress::new("a", 1);
    let steps = [Step::Fail(io::ErrorKind::BrokenPipe), Step::Bytes(bytes(1))];
    let mut framed = framed(steps).with_target(&address);
    let error = framed.send(message(1, 0)).now_or_never().unwrap().unwrap_err();
    let line = "a:1: network error at hello: sending a message of 26 bytes: broken pipe";
    assert_eq!(format!("{error:#}"), line);
    for _ in 0..2 {
        let again = recv(&mut framed).unwrap_err().to_string();
        assert!(again.starts_with("a:1: network error at hello: "), "{again}");
        let cause = "it has failed before: sending a message of 26 bytes: broken pipe";
        assert!(again.ends_with(cause), "{again}");
    }
}

#[test]
fn a_stream_that_ends_or_fails_is_an_error_of_its_kind_that_says_what_had_arrived() {
    let check = |arrived: usize, end, kind, words| {
        refused(&mut framed([Step::Bytes(bytes(1)[..arrived].to_vec()), end]), kind, words);
    };
    let network = ErrorKind::Network;
    let expected = "closed the connection while a message was expected";
    refused(&mut framed([Step::Eof]), network, expected);
    check(7, Step::Eof, network, "after 7 of 16 bytes of a header");
    check(20, Step::Eof, network, "after 20 of 26 bytes of a message");
    check(1, Step::Fail(io::ErrorKind::TimedOut), ErrorKind::Timeout, "(1 bytes had arrived)");
    check(1, Step::Fail(io::ErrorKind::ConnectionReset), network, "connection reset");
}

#[test]
fn a_partial_receive_that_is_dropped_makes_the_connection_unusable_i_12() {
    let (head, tail) = (bytes(1)[..20].to_vec(), bytes(1)[20..].to_vec());
    for (is_reply_due, before) in [(true, vec![]), (false, vec![Step::Bytes(head)])] {
        let mut framed = framed(before);
        if is_reply_due {
            framed.stream.steps.push_front(Step::Take(100));
            framed.send(message(1, 0)).now_or_never().unwrap().unwrap();
            framed.stream.written.clear();
        }
        framed.stream.steps.extend([Step::Pending, Step::Bytes(tail.clone())]);
        assert!(framed.recv().now_or_never().is_none());
        refused(&mut framed, ErrorKind::Network, "a receive was dropped before it was complete");
        let sent = framed.send(message(2, 0)).now_or_never().unwrap();
        assert!(sent.unwrap_err().to_string().contains("a receive was dropped"));
        assert!(framed.stream.written.is_empty());
    }
}

#[test]
fn a_partial_send_that_is_dropped_makes_the_connection_unusable_i_12() {
    let mut framed = framed([Step::Take(10), Step::Pending, Step::Take(100)]);
    assert!(framed.send(message(1, 0)).now_or_never().is_none());
    refused(&mut framed, ErrorKind::Network, "a send was dropped before it was complete");
    assert_eq!(framed.stream.written, bytes(1)[..10]);
}

#[test]
fn a_future_that_was_never_polled_does_not_affect_the_connection() {
    let mut framed = framed([Step::Bytes(bytes(1))]);
    drop(framed.recv());
    recv(&mut framed).unwrap();
}

#[test]
fn a_late_refusal_of_tls_keeps_its_stage_during_hello() {
    for (stage, expected) in [(Stage::Hello, Stage::Tls), (Stage::Operation, Stage::Operation)] {
        let mut line = Line::new(Box::new(framed([Step::Take(usize::MAX), Step::Refuse])));
        let request = line.exchange().command(&[5, 0, 0, 0, 0]);
        let error = line.converse(request, stage).now_or_never().unwrap().unwrap_err();
        assert_eq!((error.stage(), error.message()), (expected, "refused"));
    }
}
