//! The standard streams, and output that does not block the program, even if its reader is slow.
//!
//! A program has to keep monitoring, and to end on request, even if its reader, such as a pager,
//! has stopped reading. Therefore a separate thread does the writing, and the program waits for
//! that thread only briefly.

use std::{
    env,
    future::{pending, poll_fn},
    io::{self, IsTerminal, Write},
    mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
    thread,
    time::Duration,
};

use futures::channel::oneshot;

use crate::{files::cannot_write, terminal::Palette};

/// The outputs of a program.
#[derive(Debug)]
pub struct Console<O, R> {
    /// The requested output.
    pub output: O,
    /// The stream for errors and remarks.
    pub remarks: R,
    /// The colours of the output.
    pub palette: Palette,
}

impl Console<Output, Output> {
    /// Opens standard output and standard error. Output is coloured if it goes to a terminal and
    /// the user has not disabled colours. Writing to either stream does not block the program.
    pub fn standard() -> Self {
        Self { output: Output::stdout(), remarks: Output::stderr(), palette: palette() }
    }
}

/// Opens the standard streams like [`Console::standard`], but for a program that does nothing but
/// write, so writing may block.
pub(crate) fn console() -> Console<impl Write, impl Write> {
    Console { output: readable_output(), remarks: standard_error(), palette: palette() }
}

/// Returns the colours of standard output.
fn palette() -> Palette {
    let (no_color, term) = (env::var_os("NO_COLOR"), env::var_os("TERM"));
    let is_terminal = io::stdout().is_terminal();
    Palette::detect(is_terminal, no_color.as_deref(), term.as_deref())
}

/// Returns standard output for content of any kind; its errors say that they concern standard
/// output.
pub(crate) fn standard_output() -> impl Write + Send + 'static {
    Named("standard output", io::stdout())
}

/// Returns standard output for text that people read.
pub(crate) fn readable_output() -> impl Write + Send + 'static {
    Readable { inner: standard_output(), palette: Palette::Ansi }
}

/// Returns standard error, for text that people read. It has no colours.
pub(crate) fn standard_error() -> impl Write + Send + 'static {
    Readable { inner: Named("standard error", io::stderr()), palette: Palette::Plain }
}

/// A stream for text that people read.
///
/// Text may contain strings of servers, name servers, files and the command line. All output for
/// people passes through this type, so that no such string can control the terminal.
pub(crate) struct Readable<W> {
    pub(crate) inner: W,
    /// The palette whose colours are kept.
    pub(crate) palette: Palette,
}

impl<W: Write> Write for Readable<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = self.palette.readable(&String::from_utf8_lossy(bytes));
        self.inner.write_all(text.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// A stream and its name, which is added to the stream's errors.
struct Named<W>(&'static str, W);

impl<W> Named<W> {
    fn name<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|error| io::Error::new(error.kind(), cannot_write(self.0, &error)))
    }
}

impl<W: Write> Write for Named<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.1.write(bytes);
        self.name(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.1.flush();
        self.name(flushed)
    }
}

/// The size of the buffer in bytes; output that does not fit is discarded.
const CAPACITY: usize = 1 << 20;

/// The time limit of a flush, which is long enough for an active reader.
const WRITE_TIMEOUT: Duration = Duration::from_millis(50);

/// The time limit of the final flush.
const FINISH_TIMEOUT: Duration = Duration::from_secs(1);

/// A writer that never blocks for long. Clones write to the same output.
///
/// Dropping the last clone waits until everything is written, for at most a second, unless the
/// reader is known to be stuck.
#[derive(Clone)]
pub struct Output(Arc<Handle>);

struct Handle(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<OutputState>,
    /// Notified when there is output to write, and when the writing thread has written it or has
    /// failed.
    changed: Condvar,
}

#[derive(Default)]
struct OutputState {
    waiting: Vec<u8>,
    writer: Writer,
    /// True if a wait for the thread has timed out, and the thread has written nothing since then.
    stuck: bool,
    /// The number of bytes that were discarded because the buffer was full.
    lost: usize,
    error: Option<io::Error>,
    /// The waker of the task that waits in [`Output::failed`].
    observer: Option<Waker>,
    ended: bool,
}

/// The state of the writing thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Writer {
    /// The thread is waiting for output.
    #[default]
    Waiting,
    Writing,
    /// The thread has failed.
    Failed,
}

impl Output {
    /// Opens standard output for text that people read: control characters are replaced.
    pub fn stdout() -> Self {
        Self::new(readable_output())
    }

    /// Opens standard error for text that people read: control characters are replaced.
    pub fn stderr() -> Self {
        Self::new(standard_error())
    }

    /// Creates an output with a thread that writes to `writer`.
    pub fn new(mut writer: impl Write + Send + 'static) -> Self {
        let shared = Arc::<Shared>::default();
        let own = Arc::clone(&shared);
        let thread = thread::Builder::new().name("output".to_owned());
        if let Err(error) = thread.spawn(move || own.write_to(&mut writer)) {
            lock(&shared.state).fail(error);
        }
        Self(Arc::new(Handle(shared)))
    }

    /// Resolves when writing has failed. The next flush then returns the error.
    pub async fn failed(&self) {
        poll_fn(|cx| {
            let mut state = lock(&self.0.0.state);
            if state.error.is_some() {
                return Poll::Ready(());
            }
            state.observer = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Waits until everything is written, for at most a second.
    ///
    /// # Errors
    ///
    /// Returns the writer's error, or a timeout if not everything could be written in time.
    pub fn finish(self) -> io::Result<()> {
        let shared = &self.0.0;
        let mut state = shared.wait(FINISH_TIMEOUT);
        state.stuck = !state.is_idle();
        if let Some(error) = state.error.take() {
            return Err(error);
        }
        let missed = state.lost > 0 && state.writer != Writer::Failed;
        if missed || !state.is_idle() {
            let message = "the reader did not read all of the output";
            return Err(io::Error::new(io::ErrorKind::TimedOut, message));
        }
        Ok(())
    }
}

impl Write for Output {
    /// Buffers all of `bytes`, or discards all of them if they do not fit.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let shared = &self.0.0;
        let mut state = lock(&shared.state);
        if let Some(error) = state.error.take() {
            return Err(error);
        }
        if state.waiting.len() + bytes.len() > CAPACITY {
            state.lost += bytes.len();
        } else {
            state.waiting.extend_from_slice(bytes);
            shared.changed.notify_all();
        }
        Ok(bytes.len())
    }

    /// Waits briefly until the output is written, so that an error is usually returned by the call
    /// that caused it. [`Output::failed`] reports a later error.
    fn flush(&mut self) -> io::Result<()> {
        let shared = &self.0.0;
        let timeout = if lock(&shared.state).stuck { Duration::ZERO } else { WRITE_TIMEOUT };
        let mut state = shared.wait(timeout);
        state.stuck = !state.is_idle();
        state.error.take().map_or(Ok(()), Err)
    }
}

impl Shared {
    /// Writes the buffered output until the last handle is dropped.
    fn write_to(&self, writer: &mut impl Write) {
        let mut state = lock(&self.state);
        loop {
            if !state.waiting.is_empty() {
                let bytes = mem::take(&mut state.waiting);
                state.writer = Writer::Writing;
                drop(state);
                let result = writer.write_all(&bytes).and_then(|()| writer.flush());
                state = lock(&self.state);
                state.writer = Writer::Waiting;
                state.stuck = false;
                if let Err(error) = result {
                    state.fail(error);
                }
                self.changed.notify_all();
            } else if state.ended {
                return;
            } else {
                let woken = self.changed.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Waits until everything is written, but for at most `timeout`.
    fn wait(&self, timeout: Duration) -> MutexGuard<'_, OutputState> {
        let busy = |state: &mut OutputState| !state.is_idle();
        let (state, _) = self
            .changed
            .wait_timeout_while(lock(&self.state), timeout, busy)
            .unwrap_or_else(PoisonError::into_inner);
        state
    }
}

impl OutputState {
    fn is_idle(&self) -> bool {
        match self.writer {
            Writer::Waiting => self.waiting.is_empty(),
            Writer::Writing => false,
            Writer::Failed => true,
        }
    }

    fn fail(&mut self, error: io::Error) {
        self.error.get_or_insert(error);
        self.writer = Writer::Failed;
        self.waiting.clear();
        if let Some(observer) = self.observer.take() {
            observer.wake();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Do not wait again if an earlier wait has timed out without progress since.
        let stuck = lock(&self.0.state).stuck;
        let timeout = if stuck { Duration::ZERO } else { FINISH_TIMEOUT };
        self.0.wait(timeout).ended = true;
        self.0.changed.notify_all();
    }
}

/// Resolves when the reader of standard output closes the pipe. Never resolves if the output is not
/// a pipe, or if the system cannot report the closing.
pub async fn abandoned() {
    let (gone, left) = oneshot::channel();
    let thread = thread::Builder::new().name("reader".to_owned());
    let started = thread.spawn(|| {
        wait_for_the_end_of(&io::stdout());
        gone.send(())
    });
    if started.is_err() || left.await.is_err() {
        pending::<()>().await;
    }
}

/// Locks `mutex`, even if a thread has panicked while holding the lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Blocks until the reading end of `pipe` is closed.
#[cfg(unix)]
fn wait_for_the_end_of(pipe: &impl std::os::fd::AsFd) {
    use rustix::{
        event::{PollFd, PollFlags, poll},
        io::Errno,
    };

    // If no events are requested, `poll` reports only that the reader closed the pipe.
    let mut descriptors = [PollFd::new(pipe, PollFlags::empty())];
    while poll(&mut descriptors, None) == Err(Errno::INTR) {}
}

#[cfg(not(unix))]
fn wait_for_the_end_of<P>(_: &P) {
    loop {
        thread::park();
    }
}

sdam_core::opaque!(Output);

#[cfg(test)]
mod tests {
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
}
