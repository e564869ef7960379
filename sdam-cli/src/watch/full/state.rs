//! The user's choices, such as read preference, order, filter and selection.

use sdam_core::{
    address::ServerAddress,
    read_preference::{ReadMode, ReadPreference},
};
use strum::VariantArray as _;

use super::{super::model::Model, keys::Key};

/// The order of the servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::Display, strum::VariantArray)]
pub(super) enum Sort {
    /// Servers with errors first, then the primary.
    #[default]
    #[strum(serialize = "worst first")]
    Worst,
    #[strum(serialize = "by address")]
    Address,
    /// Servers by round-trip time, the slowest first.
    #[strum(serialize = "slowest first")]
    Slowest,
}

/// Returns the value that follows `current` in `all`; the first value follows the last one.
fn after<T: Copy + Default + PartialEq>(all: &[T], current: T) -> T {
    let mut next = all.iter().cycle().skip_while(|value| **value != current).skip(1);
    next.next().copied().unwrap_or_default()
}

/// An action that a key requests in addition to changing the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// No further action.
    None,
    /// Leave the program.
    Quit,
    /// Stop the process until it is continued.
    Suspend,
    /// Redraw everything.
    Redraw,
    /// Save everything recorded since the start.
    Save,
}

/// The state of the screen.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// The read preference for which the screen marks eligible servers.
    pub(super) preference: ReadPreference,
    /// The order of the servers.
    pub(super) sort: Sort,
    /// A search string. Only servers whose address, state or tags contain the string are shown.
    pub(super) filter: String,
    /// True if typed keys are added to the filter.
    pub(super) is_filtering: bool,
    /// The selected server; `None` until the user selects one.
    pub(super) selected: Option<ServerAddress>,
    /// True if the details of a server are shown in place of the log.
    pub(super) has_details: bool,
    /// True if the help is shown.
    pub(super) has_help: bool,
    /// The number of entries by which the user has scrolled back the log.
    pub(super) scrolled: usize,
    /// The state of the deployment at the time when the view was frozen.
    pub(super) frozen: Option<Box<Model>>,
    /// The response to the last key.
    pub(super) message: Option<String>,
}

impl State {
    /// Creates the state of a new screen; `preference` comes from the connection string.
    pub(super) fn new(preference: ReadPreference) -> Self {
        Self { preference, ..Self::default() }
    }

    /// Handles a key. `shown` contains the addresses of the visible servers, in order; `model` is
    /// the current model.
    pub(super) fn press(&mut self, key: Key, shown: &[ServerAddress], model: &Model) -> Action {
        self.message = None;
        match key {
            Key::Control('c') => return Action::Quit,
            Key::Control('z') => return Action::Suspend,
            Key::Control('l') => return Action::Redraw,
            _ if self.is_filtering => {
                self.edit_filter(key);
                return Action::None;
            }
            _ => {}
        }
        if self.has_help {
            self.has_help = false;
            return if key == Key::Char('q') { Action::Quit } else { Action::None };
        }
        match key {
            Key::Char('q') => return Action::Quit,
            Key::Char('w') => return Action::Save,
            Key::Char('?' | 'h') => self.has_help = true,
            Key::Char('p' | ' ') => self.pause(model),
            Key::Char('r') => self.change_preference(),
            Key::Char('s') => {
                self.sort = after(Sort::VARIANTS, self.sort);
                self.message = Some(format!("servers: {}", self.sort));
            }
            Key::Char('/' | 'f') => self.is_filtering = true,
            Key::Char('d') | Key::Enter => self.has_details = !self.has_details,
            Key::Escape => self.reset(),
            Key::Up | Key::Char('k') => self.select(shown, -1),
            Key::Down | Key::Char('j') => self.select(shown, 1),
            Key::Home => self.select(shown, isize::MIN),
            Key::End => self.select(shown, isize::MAX),
            Key::PageUp => self.scrolled = self.scrolled.saturating_add(PAGE),
            Key::PageDown => self.scrolled = self.scrolled.saturating_sub(PAGE),
            _ => {}
        }
        // The log cannot be scrolled beyond its first entry.
        let entries = self.frozen.as_deref().unwrap_or(model).log.iter().len();
        self.scrolled = self.scrolled.min(entries.saturating_sub(1));
        Action::None
    }

    fn edit_filter(&mut self, key: Key) {
        match key {
            Key::Char(letter) => self.filter.push(letter),
            Key::Backspace => drop(self.filter.pop()),
            Key::Escape => self.filter.clear(),
            _ => {}
        }
        self.is_filtering &= !matches!(key, Key::Escape | Key::Enter);
    }

    /// Closes the details if they are shown; otherwise removes the filter and scrolls to the end of
    /// the log.
    fn reset(&mut self) {
        if self.has_details {
            self.has_details = false;
        } else {
            self.filter.clear();
            self.scrolled = 0;
        }
    }

    fn pause(&mut self, model: &Model) {
        self.frozen = self.frozen.is_none().then(|| Box::new(model.clone()));
    }

    fn change_preference(&mut self) {
        let mut changed = self.preference.clone();
        changed.mode = after(ReadMode::ALL, changed.mode);
        // The connection string's tags and maximum staleness are not valid with every mode.
        if changed.validate().is_err() {
            changed.mode = ReadMode::PrimaryPreferred;
        }
        self.message = Some(format!("read preference: {changed}"));
        self.preference = changed;
    }

    fn select(&mut self, shown: &[ServerAddress], by: isize) {
        let Some(last) = shown.len().checked_sub(1) else {
            return;
        };
        let selected = self.selected.as_ref();
        let current = shown.iter().position(|own| Some(own) == selected);
        let next = match current {
            Some(current) => current.saturating_add_signed(by).min(last),
            None if by == isize::MAX => last,
            None => 0,
        };
        self.selected = shown.get(next).cloned();
    }
}

/// The number of log entries that Page Up scrolls back.
const PAGE: usize = 5;

#[cfg(test)]
mod tests {
    use sdam_core::options::Options;

    use super::*;

    fn addresses() -> Vec<ServerAddress> {
        ["a", "b", "c"].map(|name| ServerAddress::parse(name).unwrap()).into()
    }

    fn press(state: &mut State, keys: &str) -> Vec<Action> {
        let model = Model::new(&Options::new(addresses()));
        keys.chars()
            .map(|letter| {
                let key = match letter {
                    '<' => Key::Escape,
                    '\n' => Key::Enter,
                    '\u{8}' => Key::Backspace,
                    letter => Key::Char(letter),
                };
                state.press(key, &addresses(), &model)
            })
            .collect()
    }

    fn state() -> State {
        State::new(ReadPreference::default())
    }

    #[test]
    fn letters_of_a_filter_are_no_commands_until_it_is_entered() {
        let mut state = state();
        press(&mut state, "/qww\u{8}");
        assert_eq!((&*state.filter, state.is_filtering), ("qw", true));
        assert_eq!(press(&mut state, "\nw"), [Action::None, Action::Save]);
        assert_eq!(state.filter, "qw");
        press(&mut state, "<");
        assert_eq!(state.filter, "");
        // If the user presses Escape while typing a filter, the filter is removed, too.
        press(&mut state, "/a<");
        assert_eq!((&*state.filter, state.is_filtering), ("", false));
    }

    #[test]
    fn the_read_preference_passes_through_all_modes_that_are_valid() {
        let mut state = state();
        let mut modes = Vec::new();
        for _ in 0..5 {
            press(&mut state, "r");
            modes.push(state.preference.mode);
        }
        let all = [
            ReadMode::PrimaryPreferred,
            ReadMode::Secondary,
            ReadMode::SecondaryPreferred,
            ReadMode::Nearest,
            ReadMode::Primary,
        ];
        assert_eq!(modes, all);
        // Tags are invalid with the mode `primary`, so that mode is skipped.
        let tags = [("dc", "ny")].into_iter().collect();
        let nearest = ReadPreference::new(ReadMode::Nearest).with_tag_sets(vec![tags]);
        let mut state = State::new(nearest);
        press(&mut state, "r");
        assert_eq!(state.preference.mode, ReadMode::PrimaryPreferred);
    }

    #[test]
    fn the_selection_stays_within_the_servers() {
        let mut state = state();
        let check = |state: &State, expected: &str| {
            let selected = state.selected.as_ref().map(ServerAddress::host);
            assert_eq!(selected, Some(expected));
        };
        press(&mut state, "k");
        check(&state, "a");
        press(&mut state, "jjjj");
        check(&state, "c");
        press(&mut state, "k");
        check(&state, "b");
        let model = Model::new(&Options::new(addresses()));
        state.press(Key::Home, &addresses(), &model);
        check(&state, "a");
        state.press(Key::End, &addresses(), &model);
        check(&state, "c");
        // Without servers, there is nothing to select.
        state.press(Key::Up, &[], &model);
        check(&state, "c");
    }
}
