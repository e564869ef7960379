//! The parts of a connection string, percent-encoding, and the options of the string or of its TXT
//! record.

use alloc::{
    borrow::Cow,
    boxed::Box,
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    format,
    string::{String, ToString},
    vec::Vec,
};

use crate::{
    address::{ServerAddress, is_ipv6},
    closest,
    options::{ConfigError, Warning},
    uri_options::{self, Alias, HIDDEN, Refusal, Repetition, Row, Secret, Settings, Value},
};

/// The suffix of a Unix domain socket's path.
const SOCKET: &str = ".sock";

/// A connection string that is split at its separators but not yet decoded.
#[derive(Clone, Copy)]
pub(super) struct Parts<'a> {
    pub(super) srv: bool,
    user_info: Option<&'a str>,
    hosts: &'a str,
    database: &'a str,
    pub(super) query: &'a str,
    /// True if an `@` follows the first `/` or `?`. The `@` may belong to an option, but it may
    /// also end user info that contains an unescaped separator. Every part may then contain a piece
    /// of a password, so all parts are hidden.
    pub(super) confidential: bool,
}

/// The user name and password of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct UserInfo {
    pub(super) user: Option<Box<str>>,
    pub(super) password: Option<Secret>,
}

impl<'a> Parts<'a> {
    /// Splits `text`: `scheme://[user[:password]@]host[,host...][/[database]][?options]`.
    pub(super) fn split(text: &'a str) -> Result<Self, ConfigError> {
        let (srv, rest) = scheme(text)?;
        let (authority, tail) = split_before(rest, ['/', '?']);
        let (path, query) = split_before(tail, ['?', '?']);
        let (user_info, hosts) = match authority.rsplit_once('@') {
            Some((user_info, hosts)) => (Some(user_info), hosts),
            None => (None, authority),
        };
        Ok(Self {
            srv,
            user_info,
            hosts,
            database: path.strip_prefix('/').unwrap_or(path),
            query: query.strip_prefix('?').unwrap_or(query),
            confidential: tail.contains('@'),
        })
    }

    pub(super) fn user_info(&self) -> Result<UserInfo, ConfigError> {
        let Some(text) = self.user_info else {
            return Ok(UserInfo::default());
        };
        let (user, password) = match text.split_once(':') {
            Some((user, password)) => (user, Some(password)),
            None => (text, None),
        };
        let invalid = |part: &str, reason| {
            let remedy = "percent-encode `%` as %25, `:` as %3A, `/` as %2F, `?` as %3F and `@` as \
                          %40";
            ConfigError::new(part, HIDDEN, reason, remedy)
        };
        let decode = |part: &str, text| {
            if str::contains(text, [':', '@']) {
                return Err(invalid(part, "it contains an unescaped `:` or `@`"));
            }
            decode(text).map_err(|reason| invalid(part, reason))
        };
        let user: Box<str> = decode("user name", user)?.into();
        let password = password.map(|text| decode("password", text)).transpose()?;
        if user.is_empty() {
            let reason = "it is empty";
            let remedy = "name the user, or leave out the `@` and what is before it";
            return Err(ConfigError::new("user name", "", reason, remedy));
        }
        Ok(UserInfo { user: Some(user), password: password.map(|password| Secret::new(&password)) })
    }

    pub(super) fn database(&self) -> Result<Option<Box<str>>, ConfigError> {
        let invalid = |reason| {
            ConfigError::new(
                "database",
                self.shown(self.database),
                reason,
                "name one database without `/`, `\\`, `\"`, `$` and spaces; a `/`, `?` or `@` in \
                 a user name or password is percent-encoded as %2F, %3F or %40",
            )
        };
        if self.database.contains('@') {
            // An `@` is legal in a name, but it is more likely to mark the end of a password that
            // contains an unescaped `/`.
            return Err(invalid("it contains an unescaped `@`"));
        }
        let name = decode(self.database).map_err(invalid)?;
        if name.contains(['/', '\\', '"', '$', ' ', '\0']) {
            return Err(invalid("it contains a character no database name has"));
        }
        Ok((!name.is_empty()).then(|| name.into()))
    }

    /// Returns the hosts in the given order, without duplicates.
    pub(super) fn hosts(
        &self,
        warnings: &mut Vec<Warning>,
    ) -> Result<Vec<ServerAddress>, ConfigError> {
        let mut hosts = Vec::new();
        let mut seen = BTreeSet::new();
        for text in self.hosts.split(',') {
            let host = self.host(text)?;
            if seen.insert(host.clone()) {
                hosts.push(host);
            } else {
                let reason = "it is named more than once";
                let consequence = "it counts once";
                warnings.push(Warning::new("host", self.shown_hosts(text), reason, consequence));
            }
        }
        Ok(hosts)
    }

    /// Returns the host name in an SRV string, for which the SRV record is looked up (Initial DNS
    /// Seedlist Discovery: "Connection String Format").
    pub(super) fn srv_host(&self) -> Result<Box<str>, ConfigError> {
        let invalid = |reason| {
            let remedy = "write mongodb+srv:// and one host name without a port";
            Err(ConfigError::new("host", self.shown_hosts(self.hosts), reason, remedy))
        };
        if self.hosts.contains(',') {
            return invalid("an SRV string names one host only");
        }
        if self.hosts.contains(':') {
            return invalid("an SRV string names no port");
        }
        let host = self.host(self.hosts)?;
        if host.is_unix() {
            return invalid("a path has no SRV record");
        }
        if !host.host().is_ascii() {
            // The hosts in SRV records are in ASCII form, and must belong to the domain of this
            // name.
            let reason = "it contains characters outside of ASCII";
            let remedy = "write the name in its ASCII form, whose labels begin with xn--";
            return Err(ConfigError::new("host", self.shown_hosts(self.hosts), reason, remedy));
        }
        Ok(host.host().trim_end_matches('.').into())
    }

    fn host(&self, text: &str) -> Result<ServerAddress, ConfigError> {
        let shown = self.shown_hosts(text);
        let remedy: Box<str> = if is_ipv6(&shown) {
            format!("write [{shown}] or [{shown}]:27017").into()
        } else if &*shown == text {
            "write host, host:port, [IPv6]:port or the path of a socket with every `/` as %2F"
                .into()
        } else {
            "write host:port with a number; if it is a user name and a password, write `@` and the \
             host behind them, and percent-encode `/`, `?` and `@` in them as %2F, %3F and %40"
                .into()
        };
        let invalid = |reason| ConfigError::new("host", &*shown, reason, &*remedy);
        let decoded = decode(text).map_err(invalid)?;
        if decoded.contains('/') {
            // Connection String: a socket path ends in `.sock`, and an unescaped `/` ends the
            // hosts.
            return if decoded.ends_with(SOCKET) {
                ServerAddress::read(&decoded).map_err(invalid)
            } else {
                Err(invalid("the path of a socket must end in `.sock`"))
            };
        }
        let mut decoded = decoded.into_owned();
        if decoded.ends_with(SOCKET) {
            // A name without a `/` is a host name; the port keeps it from being read as a path.
            decoded.push_str(":27017");
        }
        ServerAddress::read(&decoded).map_err(invalid)
    }

    /// Returns `hosts`, or a placeholder if `hosts` might contain part of a password: in a string
    /// without a host, such as `mongodb://user:password`, the password follows a `:` like a port.
    fn shown_hosts(&self, hosts: &str) -> Box<str> {
        let is_port = |byte: u8| byte.is_ascii_digit() || b"-:[]".contains(&byte);
        match hosts.split_once(':') {
            _ if self.confidential => HIDDEN.into(),
            _ if is_ipv6(hosts) => hosts.into(),
            Some((host, port)) if !hosts.starts_with('[') && !port.bytes().all(is_port) => {
                format!("{host}:{HIDDEN}").into()
            }
            _ => hosts.into(),
        }
    }

    /// Returns `text`, or a placeholder if it might be part of a password.
    fn shown(&self, text: &'a str) -> &'a str {
        if self.confidential { HIDDEN } else { text }
    }
}

fn scheme(text: &str) -> Result<(bool, &str), ConfigError> {
    if let Some(rest) = text.strip_prefix("mongodb://") {
        return Ok((false, rest));
    }
    if let Some(rest) = text.strip_prefix("mongodb+srv://") {
        return Ok((true, rest));
    }
    let invalid = |shown: &str, reason: &str, remedy: &str| {
        Err(ConfigError::new("connection string", shown, reason, remedy))
    };
    // The rest of the string is hidden, because it may contain a secret.
    let Some((scheme, _)) = text.split_once("://") else {
        return if text.split(',').all(has_port) {
            let remedy = format!("write mongodb://{text}");
            invalid(text, "it has no scheme", &remedy)
        } else {
            let remedy = "begin it with mongodb:// or mongodb+srv://";
            invalid("", "it has no scheme", remedy)
        };
    };
    let mut known = ["mongodb", "mongodb+srv"].into_iter();
    if let Some(own) = known.find(|own| own.eq_ignore_ascii_case(scheme)) {
        let shown = format!("{scheme}://");
        let remedy = format!("begin it with {own}://");
        return invalid(&shown, "the scheme must be in lower case", &remedy);
    }
    let shown = if scheme.bytes().all(|byte| byte.is_ascii_lowercase()) { scheme } else { "" };
    let reason = "it has another scheme than MongoDB's";
    invalid(shown, reason, "begin it with mongodb:// or mongodb+srv://")
}

/// Returns whether `text` is a host with a port, and therefore not part of a password.
fn has_port(text: &str) -> bool {
    let port = text.rsplit_once(':').map_or("", |(_, port)| port);
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    is_number && !text.contains(['@', '/', '?']) && ServerAddress::read(text).is_ok()
}

/// Splits `text` before the first of `separators`.
fn split_before(text: &str, separators: [char; 2]) -> (&str, &str) {
    text.split_at(text.find(separators).unwrap_or(text.len()))
}

/// Decodes the percent-encoding of `text` (RFC 3986, section 2.1). The error describes the problem
/// with `text`.
pub(super) fn decode(text: &str) -> Result<Cow<'_, str>, &'static str> {
    if !text.contains('%') {
        return Ok(Cow::Borrowed(text));
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let digits = bytes.next().and_then(hex).zip(bytes.next().and_then(hex));
        let Some((high, low)) = digits else {
            return Err("a `%` is not followed by two hexadecimal digits");
        };
        decoded.push(high << 4 | low);
    }
    String::from_utf8(decoded)
        .map(Cow::Owned)
        .map_err(|_| "its percent-encoding does not yield UTF-8")
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

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

    /// Checks the rules that involve several options.
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
