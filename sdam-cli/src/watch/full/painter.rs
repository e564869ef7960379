//! Draws frames on a terminal, writing only the changes.

use ratatui::{
    backend::{Backend, ClearType},
    buffer::Buffer,
    layout::{Rect, Size},
};

/// Writes frames to a terminal.
pub(super) struct Painter<B> {
    backend: B,
    /// The contents of the terminal; unknown before the first frame.
    shown: Option<Buffer>,
}

impl<B: Backend> Painter<B> {
    pub(super) fn new(backend: B) -> Self {
        Self {
            backend,
            shown: None,
        }
    }

    #[cfg(test)]
    pub(super) fn backend(&self) -> &B {
        &self.backend
    }

    #[cfg(test)]
    pub(super) fn backend_mut(&mut self) -> &mut B {
        &mut self.backend
    }

    /// Redraws everything with the next frame.
    pub(super) fn forget(&mut self) {
        self.shown = None;
    }

    /// Draws a frame; `render` fills it and returns the area of the clock. Returns whether anything
    /// was written.
    ///
    /// If only the clock differs from the terminal, nothing is written. A terminal may temporarily
    /// have size zero.
    pub(super) fn paint(
        &mut self,
        render: impl FnOnce(&mut Buffer) -> Rect,
    ) -> Result<bool, B::Error> {
        let Size { width, height } = self.backend.size()?;
        let area = Rect::new(0, 0, width, height);
        if area.is_empty() {
            return Ok(false);
        }
        let mut next = Buffer::empty(area);
        let clock = render(&mut next);
        let shown = match self.shown.take() {
            Some(shown) if shown.area == area => shown,
            _ => {
                self.backend.clear_region(ClearType::All)?;
                Buffer::empty(area)
            }
        };
        let changes = shown.diff(&next);
        if changes
            .iter()
            .all(|(x, y, _)| clock.contains((*x, *y).into()))
        {
            self.shown = Some(shown);
            return Ok(false);
        }
        self.backend.draw(changes.into_iter())?;
        self.backend.flush()?;
        self.shown = Some(next);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use ratatui::{backend::TestBackend, style::Style};

    use super::*;

    const CLOCK: Rect = Rect::new(3, 0, 2, 1);

    fn paint(painter: &mut Painter<TestBackend>, text: &str) -> bool {
        painter
            .paint(|buffer| {
                buffer.set_string(0, 0, text, Style::new());
                CLOCK
            })
            .unwrap()
    }

    #[test]
    fn nothing_is_written_if_only_the_clock_has_changed() {
        let mut painter = Painter::new(TestBackend::new(5, 1));
        assert!(paint(&mut painter, "ab 01"));
        assert!(!paint(&mut painter, "ab 01"));
        assert!(!paint(&mut painter, "ab 02"));
        painter.backend.assert_buffer_lines(["ab 01"]);
        assert!(paint(&mut painter, "ac 03"));
        painter.backend.assert_buffer_lines(["ac 03"]);
    }

    #[test]
    fn everything_is_drawn_again_after_a_resize_and_on_request() {
        let mut painter = Painter::new(TestBackend::new(5, 1));
        paint(&mut painter, "ab 01");
        painter.backend.resize(4, 1);
        assert!(paint(&mut painter, "ab "));
        painter.backend.assert_buffer_lines(["ab  "]);
        painter.forget();
        assert!(paint(&mut painter, "ab "));
    }

    #[test]
    fn a_terminal_without_a_size_shows_nothing() {
        for (width, height) in [(0, 0), (0, 5), (5, 0)] {
            let mut painter = Painter::new(TestBackend::new(width, height));
            let drawn = painter.paint(|_| panic!("nothing can be drawn"));
            assert!(!drawn.unwrap());
        }
    }
}
