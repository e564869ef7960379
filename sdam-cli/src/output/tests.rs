use std::{
    sync::mpsc::{self, Receiver, Sender},
    time::Instant,
};

use futures::{FutureExt, executor::block_on};

use super::*;

/// A writer that waits for a permit before each write, and then forwards what is written.
struct Gated {
    words: Receiver<()>,
    pieces: Sender<Vec<u8>>,
}

impl Write for Gated {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Receiving fails when the test ends, and then writing fails, too.
        if self.words.recv().is_err() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.pieces.send(bytes.to_vec()).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn gated() -> (Output, Sender<()>, Receiver<Vec<u8>>) {
    let (word, words) = mpsc::channel();
    let (pieces, read) = mpsc::channel();
    (Output::new(Gated { words, pieces }), word, read)
}

#[test]
fn all_output_is_written_before_the_end() {
    let (mut output, word, read) = gated();
    word.send(()).unwrap();
    word.send(()).unwrap();
    output.write_all(b"a").unwrap();
    output.flush().unwrap();
    output.write_all(b"b").unwrap();
    output.finish().unwrap();
    drop(word);
    assert_eq!(read.iter().collect::<Vec<_>>().concat(), b"ab");
}

#[test]
fn a_stalled_reader_delays_writes_and_the_end_only_up_to_a_limit() {
    let (mut output, _word, _read) = gated();
    let began = Instant::now();
    let piece = vec![b'x'; 64 << 10];
    for _ in 0..1000 {
        output.write_all(&piece).unwrap();
        output.flush().unwrap();
    }
    assert!(lock(&output.0.0.state).waiting.len() <= CAPACITY);
    let error = output.finish().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    // The limit covers the first flush, `finish` and the drop, even on a machine under load.
    assert!(began.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_failed_write_is_noticed_however_late_it_fails() {
    let (mut output, word, _read) = gated();
    output.write_all(b"a").unwrap();
    output.flush().unwrap();
    assert!(output.failed().now_or_never().is_none());
    drop(word);
    block_on(output.failed());
    let error = output.flush().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    output.finish().unwrap();
}
