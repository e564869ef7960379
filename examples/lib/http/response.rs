use std::fmt;

use super::Method;

/// A status code with its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Three digits.
    pub code: u16,
    /// What they mean.
    pub reason: &'static str,
}

impl Status {
    /// Here it is.
    pub const OK: Self = Self::new(200, "OK");
    /// This is no HTTP, or the query makes no sense.
    pub const BAD_REQUEST: Self = Self::new(400, "Bad Request");
    /// There is no such page.
    pub const NOT_FOUND: Self = Self::new(404, "Not Found");
    /// Pages can only be read.
    pub const METHOD_NOT_ALLOWED: Self = Self::new(405, "Method Not Allowed");
    /// The request is longer than [`LONGEST_HEAD`](super::LONGEST_HEAD).
    pub const HEADERS_TOO_LARGE: Self = Self::new(431, "Request Header Fields Too Large");
    /// Not now.
    pub const UNAVAILABLE: Self = Self::new(503, "Service Unavailable");
    /// Only HTTP/1 is spoken.
    pub const VERSION_NOT_SUPPORTED: Self = Self::new(505, "HTTP Version Not Supported");

    const fn new(code: u16, reason: &'static str) -> Self {
        Self { code, reason }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.code, self.reason)
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// How it went.
    pub status: Status,
    /// What the body is.
    pub content_type: &'static str,
    /// The page.
    pub body: String,
}

impl Response {
    /// A page of plain text.
    pub fn text(status: Status, body: impl Into<String>) -> Self {
        Self {
            status,
            content_type: "text/plain; charset=utf-8",
            body: body.into(),
        }
    }

    /// The page that says no more than the status.
    pub fn of(status: Status) -> Self {
        Self::text(status, format!("{status}\n"))
    }

    /// The bytes to send to somebody who asked with `method`.
    pub fn encode(&self, method: Method) -> Vec<u8> {
        let allow = match self.status {
            Status::METHOD_NOT_ALLOWED => "Allow: GET, HEAD\r\n",
            _ => "",
        };
        let mut text = format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{allow}\
             Cache-Control: no-store\r\nConnection: close\r\n\r\n",
            self.status,
            self.content_type,
            self.body.len()
        );
        if method == Method::Get {
            text.push_str(&self.body);
        }
        text.into_bytes()
    }
}
