use futures::{
    FutureExt as _, SinkExt as _, StreamExt as _,
    io::{AsyncReadExt as _, AsyncWriteExt as _},
};

use super::*;
use crate::stream::NonBlocking;

#[test]
fn bytes_pass_in_both_directions_in_order() {
    let (mut stream, mut end) = piped();
    end.arrived.start_send(Ok(vec![1, 2, 3])).unwrap();
    let mut two = [0; 2];
    stream.read_exact(&mut two).now_or_never().unwrap().unwrap();
    assert_eq!(two, [1, 2]);
    assert_eq!(stream.read(&mut two).now_or_never().unwrap().unwrap(), 1);
    assert!(stream.read(&mut two).now_or_never().is_none());

    stream.write_all(&[4, 5]).now_or_never().unwrap().unwrap();
    assert!(stream.flush().now_or_never().is_none(), "the write was not complete");
    assert_eq!(end.to_send.next().now_or_never(), Some(Some(vec![4, 5])));
    stream.flush().now_or_never().unwrap().unwrap();
}

#[test]
fn each_direction_buffers_one_chunk() {
    let (mut stream, mut end) = piped();
    stream.write_all(&[1]).now_or_never().unwrap().unwrap();
    assert!(stream.write_all(&[2]).now_or_never().is_none());
    end.arrived.send(Ok(vec![1])).now_or_never();
    assert!(end.arrived.send(Ok(vec![2])).now_or_never().is_none());
}

#[test]
fn a_long_write_is_split_into_chunks() {
    let (mut stream, mut end) = piped();
    let long = vec![7; MAX_CHUNK + 1];
    assert_eq!(stream.write(&long).now_or_never().unwrap().unwrap(), MAX_CHUNK);
    let taken = end.to_send.next().now_or_never().unwrap().unwrap();
    assert_eq!(taken.len(), MAX_CHUNK);
}

#[test]
fn dropping_the_stream_ends_the_outgoing_bytes() {
    let (stream, mut end) = piped();
    drop(stream);
    assert_eq!(end.to_send.next().now_or_never(), Some(None));
    let sent = end.arrived.send(Ok(vec![1])).now_or_never().unwrap();
    assert!(sent.is_err());
}

#[test]
fn closing_a_wrapped_stream_ends_the_outgoing_bytes() {
    let (stream, mut end) = piped();
    let mut wrapped = NonBlocking(stream);
    wrapped.close().now_or_never().unwrap().unwrap();
    assert_eq!(end.to_send.next().now_or_never(), Some(None));
}

#[test]
fn dropping_the_socket_end_ends_reads_and_fails_writes() {
    let (mut stream, end) = piped();
    drop(end);
    assert_eq!(stream.read(&mut [0]).now_or_never().unwrap().unwrap(), 0);
    for outcome in
        [stream.write_all(&[1]).now_or_never().unwrap(), stream.flush().now_or_never().unwrap()]
    {
        assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}

#[test]
fn an_error_of_the_socket_is_an_error_of_the_read() {
    let (mut stream, mut end) = piped();
    end.arrived.start_send(Err(io::ErrorKind::ConnectionReset.into())).unwrap();
    let read = stream.read(&mut [0]).now_or_never().unwrap();
    assert_eq!(read.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
}
