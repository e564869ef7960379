use futures::{
    FutureExt as _, SinkExt as _, StreamExt as _,
    io::{AsyncReadExt as _, AsyncWriteExt as _},
};

use super::*;
use crate::stream::NonBlocking;

#[test]
fn each_direction_buffers_one_chunk_until_it_is_taken() {
    let (mut stream, mut end) = piped();
    let long = vec![7; MAX_CHUNK + 1];
    assert_eq!(stream.write(&long).now_or_never().unwrap().unwrap(), MAX_CHUNK);
    assert!(stream.flush().now_or_never().is_none(), "the write was not complete");
    assert!(stream.write_all(&[2]).now_or_never().is_none());
    assert_eq!(end.to_send.next().now_or_never(), Some(Some(vec![7; MAX_CHUNK])));
    stream.flush().now_or_never().unwrap().unwrap();

    end.arrived.send(Ok(vec![1, 2])).now_or_never();
    assert!(end.arrived.send(Ok(vec![3])).now_or_never().is_none());
    assert_eq!(stream.read(&mut [0; 4]).now_or_never().unwrap().unwrap(), 2);
}

#[test]
fn closing_a_wrapped_stream_ends_the_outgoing_bytes() {
    let (stream, mut end) = piped();
    let mut wrapped = NonBlocking(stream);
    wrapped.close().now_or_never().unwrap().unwrap();
    assert_eq!(end.to_send.next().now_or_never(), Some(None));
}

#[test]
fn writes_fail_once_the_socket_is_closed() {
    let (mut stream, end) = piped();
    drop(end);
    for outcome in
        [stream.write_all(&[1]).now_or_never().unwrap(), stream.flush().now_or_never().unwrap()]
    {
        assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
