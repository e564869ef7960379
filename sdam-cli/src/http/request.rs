use super::Status;

/// A request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The method.
    pub method: Method,
    /// The path, beginning with a slash.
    pub path: &'a str,
    /// The query after the question mark, as it was sent.
    query: &'a str,
}

/// The supported methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `GET`: the page.
    Get,
    /// `HEAD`: only the page's header.
    Head,
}

impl<'a> Request<'a> {
    /// Parses a request line and its headers, with or without the empty line behind them.
    ///
    /// # Errors
    ///
    /// The error status to answer (RFC 9110 and RFC 9112).
    pub fn parse(head: &'a [u8]) -> Result<Self, Status> {
        let head = std::str::from_utf8(head).map_err(|_| Status::BAD_REQUEST)?;
        let mut lines = head.split("\r\n");
        let mut words = lines.next().unwrap_or_default().split(' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(Status::BAD_REQUEST);
        };
        match version {
            "HTTP/1.0" => {}
            // RFC 9112, 3.2: exactly one.
            "HTTP/1.1" if lines.filter(|line| is_host(line)).count() == 1 => {}
            _ if version.starts_with("HTTP/") && version != "HTTP/1.1" => {
                return Err(Status::VERSION_NOT_SUPPORTED);
            }
            _ => return Err(Status::BAD_REQUEST),
        }
        let method = match method {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            _ => return Err(Status::METHOD_NOT_ALLOWED),
        };
        let target = origin_form(target).ok_or(Status::BAD_REQUEST)?;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        Ok(Self {
            method,
            path,
            query,
        })
    }

    /// Returns the names and values of the query, in order, as they were sent.
    pub fn parameters(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let pairs = self.query.split('&').filter(|pair| !pair.is_empty());
        pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
    }
}

fn is_host(line: &str) -> bool {
    line.split_once(':')
        .is_some_and(|(name, _)| name.eq_ignore_ascii_case("host"))
}

/// Splits a target into path and query. Every server has to accept the form for proxies, too (RFC
/// 9112, 3.2.2).
fn origin_form(target: &str) -> Option<&str> {
    if target.starts_with('/') {
        return Some(target);
    }
    let rest = target.strip_prefix("http://")?;
    Some(rest.find('/').map_or("/", |slash| &rest[slash..]))
}
