//! The parts of a connection string that precede its options, and percent-encoding.

use alloc::{borrow::Cow, boxed::Box, collections::BTreeSet, format, string::String, vec::Vec};

use crate::{
    address::{ServerAddress, is_ipv6},
    options::{ConfigError, Warning},
    uri_options::{HIDDEN, Secret},
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

    /// Returns the name of the SRV record that lists the hosts (Initial DNS Seedlist Discovery:
    /// "Connection String Format").
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

/// Decodes the percent-encoding of `text` (RFC 3986, section 2.1); the error describes the problem
/// with it.
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
