//! Parsers for the values of options and variables.

use std::{str::FromStr, time::Duration};

use hyper::{
    HeaderMap, Uri,
    header::{HeaderName, HeaderValue},
};

/// Parses the URL of a collector.
pub(super) fn url(text: &str) -> Result<Uri, String> {
    let url = Uri::from_str(text.trim_end_matches('/')).ok();
    let url = url.filter(|url| matches!(url.scheme_str(), Some("http" | "https")));
    let host = |url: &Uri| url.host().is_some_and(|host| !host.is_empty());
    let needs = "it needs the URL of a collector, for example http://127.0.0.1:4318";
    let url = url.filter(host).ok_or_else(|| needs.to_owned())?;
    if url.authority().is_some_and(|it| it.as_str().contains('@')) || url.query().is_some() {
        let remedy = "a password belongs in OTEL_EXPORTER_OTLP_HEADERS";
        return Err(format!("{needs}, without user and query; {remedy}"));
    }
    Ok(url)
}

/// Parses `text`, the value of the variable `name`, as a number of milliseconds.
pub(super) fn millis(name: &str, text: &str, default: Duration) -> Result<Duration, String> {
    match u64::from_str(text) {
        Ok(millis @ 1..) => Ok(Duration::from_millis(millis)),
        _ => Err(format!(
            "{name} is `{text}`: it needs a number of milliseconds above 0, for example {}",
            default.as_millis()
        )),
    }
}

/// Parses a list such as `a=b,c=d` with percent-encoded values. Errors do not show the values,
/// which may be secret.
pub(super) fn pairs(
    name: &str,
    text: &str,
    example: &str,
) -> Result<Vec<(String, String)>, String> {
    let items = text.split(',').map(str::trim).enumerate();
    let items = items.filter(|(_, item)| !item.is_empty());
    let pairs = items.map(|(place, item)| {
        let pair = item.split_once('=').map(|(key, value)| (key.trim(), value.trim()));
        let pair = pair.filter(|(key, _)| !key.is_empty());
        let pair = pair.and_then(|(key, value)| Some((key.to_owned(), decoded(value)?)));
        let place = place + 1;
        pair.ok_or_else(|| {
            format!("{name}: item {place} is not valid: it needs pairs such as {example}")
        })
    });
    pairs.collect()
}

/// Decodes a percent-encoded text.
fn decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let code = part.get(..2).filter(|code| !code.starts_with('+'))?;
        bytes.push(u8::from_str_radix(code, 16).ok()?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

/// Parses `text`, the value of the variable `name`, as a list of HTTP headers.
pub(super) fn headers(name: &str, text: &str) -> Result<HeaderMap, String> {
    let pairs = pairs(name, text, "authorization=Bearer%20TOKEN")?;
    let header = |(key, value): (String, String)| {
        let mut value = HeaderValue::from_str(&value).ok()?;
        value.set_sensitive(true);
        Some((HeaderName::from_str(&key).ok()?, value))
    };
    let headers = pairs.into_iter().map(|pair| {
        let key = pair.0.clone();
        header(pair)
            .ok_or_else(|| format!("{name}: the header {key:?} has an invalid name or value"))
    });
    headers.collect()
}
