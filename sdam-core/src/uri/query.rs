//! The options of a connection string, or of its TXT record.

use alloc::{
    boxed::Box,
    collections::{BTreeMap, btree_map::Entry},
    format,
    string::ToString,
    vec::Vec,
};

use super::parts::decode;
use crate::{
    closest,
    options::{ConfigError, Warning},
    uri_options::{self, Alias, HIDDEN, Refusal, Repetition, Row, Settings, Value},
};

/// The consequence of an invalid option that protects connections.
const UNGUARDED: &str = "no topology starts with it, as connections would be unguarded";

/// The only options allowed in a TXT record (Initial DNS Seedlist Discovery: "Default Connection
/// String Options").
const TXT_OPTIONS: [&str; 3] = ["authSource", "loadBalanced", "replicaSet"];

/// The options of a connection string or of its TXT record, each checked individually.
#[derive(Default)]
pub(super) struct Query {
    pub(super) settings: Settings,
    pub(super) warnings: Vec<Warning>,
    /// The error for an invalid option that protects connections. If there is one, no topology may
    /// start.
    pub(super) unguarded: Option<ConfigError>,
    /// The name, canonical or alias, under which each option was last given.
    seen: BTreeMap<&'static str, &'static str>,
    place: Place,
    /// True if what looks like an option might be part of a password.
    confidential: bool,
}

/// The source of the options.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Place {
    /// A `mongodb://` string.
    #[default]
    Standard,
    /// A `mongodb+srv://` string.
    Srv,
    /// The TXT record of the host in an SRV string.
    Txt,
}

impl Query {
    /// Parses `name=value&name=value`.
    pub(super) fn read(text: &str, place: Place, confidential: bool) -> Result<Self, ConfigError> {
        let mut query = Self { place, confidential, ..Self::default() };
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            query.pair(pair)?;
        }
        query.check()?;
        Ok(query)
    }

    fn pair(&mut self, pair: &str) -> Result<(), ConfigError> {
        let Some((key, text)) = pair.split_once('=') else {
            let reason = "the option has no value";
            let remedy = "write name=value";
            return Err(ConfigError::new(self.shown(pair), "", reason, remedy));
        };
        if key.contains('@') {
            // If the option were merely ignored as unknown, the client would connect to a host
            // whose name is part of a password.
            let reason = "the name of an option contains an `@`";
            let remedy =
                "percent-encode `/`, `?` and `@` in user name and password as %2F, %3F and %40";
            return Err(ConfigError::new("options", HIDDEN, reason, remedy));
        }
        let key = decode(key).map_err(|reason| malformed(self.shown(key), "".into(), reason))?;
        if key.is_empty() {
            return Err(ConfigError::new("options", "", "a value has no name", "write name=value"));
        }
        let found = uri_options::find(&key);
        if self.place == Place::Txt
            && !found.is_some_and(|(row, _)| TXT_OPTIONS.contains(&row.name))
        {
            let reason = "it is not allowed there";
            let remedy = format!("let the record hold {} only", TXT_OPTIONS.join(", "));
            return Err(ConfigError::new(key, HIDDEN, reason, remedy));
        }
        let Some((row, alias)) = found else {
            self.unknown(&key);
            return Ok(());
        };
        let shown = |text: &str| {
            let is_secret = row.kind.is_secret();
            if is_secret { HIDDEN.into() } else { self.shown(text) }
        };
        let text =
            decode(text).map_err(|reason| malformed(row.name.into(), shown(text), reason))?;
        let shown = shown(&text);
        self.known(row, alias, &text, shown)
    }

    /// Adds the decoded value of a known option.
    fn known(
        &mut self,
        row: &'static Row,
        alias: Option<&'static Alias>,
        text: &str,
        shown: Box<str>,
    ) -> Result<(), ConfigError> {
        if row.srv_only && self.place == Place::Standard {
            let reason = "only a mongodb+srv:// string may carry it";
            let remedy = "leave it out or use mongodb+srv://";
            return Err(ConfigError::new(row.name, shown, reason, remedy));
        }
        if row.name == "authSource" && text.is_empty() {
            let reason = "it has no value";
            let remedy = "name the database that holds the user";
            return Err(ConfigError::new(row.name, "", reason, remedy));
        }
        if let Some(alias) = alias.filter(|alias| alias.deprecated) {
            let reason = "this name is deprecated";
            let consequence = format!("it is read as `{}`", alias.name);
            self.warnings.push(Warning::new(alias.other_name, shown.clone(), reason, consequence));
        }
        let name = alias.map_or(row.name, |alias| alias.other_name);
        match row.kind.parse(text) {
            Ok(value) => self.set(row, name, value, shown),
            Err(Refusal { reason, rest }) => {
                // SOCKS5 Support: "Drivers MUST ignore this option if it specifies a zero-length
                // string".
                let is_nobody =
                    text.is_empty() && matches!(row.name, "proxyUsername" | "proxyPassword");
                let guards = row.guards && !is_nobody;
                let consequence = match rest {
                    _ if guards => UNGUARDED,
                    Some(_) => "the others are used",
                    None => "the option is ignored",
                };
                if guards {
                    let remedy = "correct the value, or leave the option out if nothing needs it";
                    let error = ConfigError::new(name, shown.clone(), &*reason, remedy);
                    self.unguarded.get_or_insert(error);
                }
                self.warnings.push(Warning::new(name, shown.clone(), reason, consequence));
                rest.map_or(Ok(()), |rest| self.set(row, name, rest, shown))
            }
        }
    }

    /// Warns of an unknown option. Its value is hidden, because it may be a secret under a
    /// misspelled name.
    fn unknown(&mut self, key: &str) {
        let known = uri_options::rows().iter().map(|row| row.name);
        let reason: Box<str> = match closest(key, known).filter(|_| !self.confidential) {
            Some(name) => format!("there is no such option (did you mean {name}?)").into(),
            None => "there is no such option".into(),
        };
        let shown = self.shown(key);
        let guards = uri_options::guards_by_name(key);
        if guards {
            let remedy = "take an option of the specification, such as `tls` or `proxyHost`, or \
                          leave it out if nothing needs it";
            let error = ConfigError::new(shown.clone(), "", &*reason, remedy);
            self.unguarded.get_or_insert(error);
        }
        let consequence = if guards { UNGUARDED } else { "it is ignored" };
        self.warnings.push(Warning::new(shown, "", reason, consequence));
    }

    fn set(
        &mut self,
        row: &'static Row,
        name: &'static str,
        value: Value,
        shown: Box<str>,
    ) -> Result<(), ConfigError> {
        let previous = self.seen.insert(row.name, name);
        let mut slot = match self.settings.entry(row.name) {
            Entry::Vacant(slot) => {
                slot.insert(value);
                return Ok(());
            }
            Entry::Occupied(slot) => slot,
        };
        match (row.repetition, slot.get_mut(), value) {
            (Repetition::List, Value::TagSets(sets), Value::TagSets(more)) => {
                sets.extend(more);
                return Ok(());
            }
            (Repetition::ErrorUnlessEqual, first, value) if *first == value => {
                // An option and its alias with equal values cause no warning.
                if previous != Some(name) {
                    return Ok(());
                }
            }
            (Repetition::Error | Repetition::ErrorUnlessEqual, ..) => {
                let reason = "it is given more than once";
                let remedy = "give it once, with one value";
                return Err(ConfigError::new(row.name, shown, reason, remedy));
            }
            // A deprecated name does not override the canonical one.
            (_, _, _) if name != row.name && previous == Some(row.name) => {
                self.seen.insert(row.name, row.name);
            }
            (_, first, value) => *first = value,
        }
        let kept = match slot.get() {
            _ if &*shown == HIDDEN => HIDDEN.to_string(),
            value => format!("`{value}`"),
        };
        let reason = "it is given more than once";
        let consequence = format!("{kept} is used");
        self.warnings.push(Warning::new(name, shown, reason, consequence));
        Ok(())
    }

    /// Checks the rules that involve several driver options.
    fn check(&self) -> Result<(), ConfigError> {
        let given = |name| self.settings.contains_key(name);
        for (one, other) in uri_options::EXCLUSIVE.iter().copied() {
            if given(one) && given(other) {
                let reason = format!("it contradicts `{other}`");
                return Err(ConfigError::new(one, "", reason, "give one of the two"));
            }
        }
        for (one, other) in uri_options::REQUIRES.iter().copied() {
            if given(one) && !given(other) {
                let reason = format!("it means nothing without `{other}`");
                return Err(ConfigError::new(one, "", reason, format!("give `{other}` too")));
            }
        }
        Ok(())
    }

    /// Returns `text`, or a placeholder if it might be part of a password.
    fn shown(&self, text: &str) -> Box<str> {
        if self.confidential { HIDDEN } else { text }.into()
    }
}

fn malformed(option: Box<str>, value: Box<str>, reason: &str) -> ConfigError {
    let remedy = "percent-encode `%` as %25, `&` as %26 and `=` as %3D";
    ConfigError::new(option, value, reason, remedy)
}
