//! Draws text within the bounds of a frame, and frames on a terminal, writing only the changes.

use ratatui::{
    backend::{Backend, ClearType},
    buffer::Buffer,
    layout::{Rect, Size},
    style::{Color, Modifier, Style},
};

use super::text::{Glyphs, width};
use crate::terminal::{Palette, Tone};

/// A frame to draw on, with the character set and the colours of the terminal.
pub(super) struct Canvas<'b> {
    buffer: &'b mut Buffer,
    pub(super) glyphs: Glyphs,
    palette: Palette,
}

impl<'b> Canvas<'b> {
    pub(super) fn new(buffer: &'b mut Buffer, glyphs: Glyphs, palette: Palette) -> Self {
        Self { buffer, glyphs, palette }
    }

    /// Returns the area of the frame.
    pub(super) fn area(&self) -> Rect {
        self.buffer.area
    }

    /// Writes `text` at the beginning of `area`, shortened to fit; returns the area after the text.
    pub(super) fn text(&mut self, area: Rect, tone: Tone, text: &str) -> Rect {
        let area = area.intersection(self.buffer.area);
        if area.is_empty() {
            return Rect::default();
        }
        let text = self.glyphs.fit(text, usize::from(area.width));
        let style = self.style(tone);
        let room = usize::from(area.width);
        let (end, _) = self.buffer.set_stringn(area.x, area.y, &text, room, style);
        let taken = end.saturating_sub(area.x).min(area.width);
        Rect { x: area.x + taken, width: area.width - taken, ..area }
    }

    /// Writes strings one after another; returns the area after them.
    pub(super) fn texts(&mut self, area: Rect, texts: &[(Tone, &str)]) -> Rect {
        let write = |rest, (tone, text): &(Tone, &str)| self.text(rest, *tone, text);
        texts.iter().fold(area, write)
    }

    /// Writes `text` at the end of `area`; returns the area that the text covers.
    pub(super) fn text_right(&mut self, area: Rect, tone: Tone, text: &str) -> Rect {
        let taken = u16::try_from(width(text)).unwrap_or(u16::MAX).min(area.width);
        let place = Rect { x: area.right() - taken, width: taken, ..area };
        self.text(place, tone, text);
        place
    }

    /// Returns the style for a tone: a named terminal colour on the terminal's own background.
    fn style(&self, tone: Tone) -> Style {
        let style = Style::new();
        if self.palette == Palette::Plain {
            return style;
        }
        match tone {
            Tone::Normal => style,
            Tone::Strong => style.add_modifier(Modifier::BOLD),
            Tone::Faint => style.add_modifier(Modifier::DIM),
            Tone::Good => style.fg(Color::Green),
            Tone::Fair => style.fg(Color::Cyan),
            Tone::Doubtful => style.fg(Color::Yellow),
            Tone::Bad => style.fg(Color::Red).add_modifier(Modifier::BOLD),
        }
    }
}

/// Returns line `number` of `area`, or an empty area if there is no such line.
pub(super) fn line(area: Rect, number: u16) -> Rect {
    if number >= area.height {
        return Rect::default();
    }
    Rect { y: area.y + number, height: 1, ..area }
}

/// Writes frames to a terminal.
pub(super) struct Painter<B> {
    pub(super) backend: B,
    /// The contents of the terminal; `None` if they are unknown, as before the first frame.
    shown: Option<Buffer>,
}

impl<B: Backend> Painter<B> {
    pub(super) fn new(backend: B) -> Self {
        Self { backend, shown: None }
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
