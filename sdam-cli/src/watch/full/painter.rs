//! Draws frames on a terminal, writing only the changes.

use ratatui::{
    backend::{Backend, ClearType},
    buffer::Buffer,
    layout::{Rect, Size},
};

/// Writes frames to a terminal.
pub(super) struct Painter<B> {
    backend: B,
    /// The contents of the terminal; `None` if they are unknown, as before the first frame.
    shown: Option<Buffer>,
}

impl<B: Backend> Painter<B> {
    pub(super) fn new(backend: B) -> Self {
        Self { backend, shown: None }
    }

    #[cfg(test)]
    pub(super) fn backend(&self) -> &B {
        &self.backend
    }

    #[cfg(test)]
    pub(super) fn backend_mut(&mut self) -> &mut B {
        &mut self.backend
    }

    /// Makes the next frame redraw everything.
    pub(super) fn forget(&mut self) {
        self.shown = None;
    }

    /// Draws a frame; `render` fills it and returns the area of its clock. Returns whether anything
    /// was written.
    ///
    /// Writes nothing if only the clock has changed, or while the terminal's size is zero, which
    /// may happen temporarily.
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
        if changes.iter().all(|(x, y, _)| clock.contains((*x, *y).into())) {
            self.shown = Some(shown);
            return Ok(false);
        }
        self.backend.draw(changes.into_iter())?;
        self.backend.flush()?;
        self.shown = Some(next);
        Ok(true)
    }
}
