use std::fmt;

use super::Method;

/// A status code with its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The code, of three digits.
    pub code: u16,
    /// The reason phrase.
    pub reason: &'static str,
}

impl Status {
    /// 200: success.
    pub const OK: Self = Self::new(200, "OK");
    /// 400: the request is not HTTP, or its query is invalid.
    pub const BAD_REQUEST: Self = Self::new(400, "Bad Request");
    /// 404: there is no such page.
    pub const NOT_FOUND: Self = Self::new(404, "Not Found");
    /// 405: the method is not supported.
    pub const METHOD_NOT_ALLOWED: Self = Self::new(405, "Method Not Allowed");
    /// 431: the request is longer than [`MAX_HEAD_LENGTH`](super::MAX_HEAD_LENGTH).
    pub const HEADERS_TOO_LARGE: Self = Self::new(431, "Request Header Fields Too Large");
    /// 503: temporarily unavailable.
    pub const UNAVAILABLE: Self = Self::new(503, "Service Unavailable");
    /// 505: only HTTP/1 is supported.
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
    /// The status.
    pub status: Status,
    /// The content type of the body.
    pub content_type: &'static str,
    /// The body.
    pub body: String,
}

impl Response {
    /// Creates a page of plain text.
    pub fn text(status: Status, body: impl Into<String>) -> Self {
        Self {
            status,
            content_type: "text/plain; charset=utf-8",
            body: body.into(),
        }
    }

    /// Creates a page with only the status.
    pub fn of(status: Status) -> Self {
        Self::text(status, format!("{status}\n"))
    }

    /// Encodes the answer to a request with `method`.
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
