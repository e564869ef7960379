//! Fetches lists of targets over HTTP.

use std::{
    error::Error,
    future::{pending, poll_fn},
    pin::{Pin, pin},
    time::Duration,
};

use futures::{FutureExt, select_biased};
use hyper::{
    Request, StatusCode, Uri,
    body::{Body, Incoming},
    client::conn::http1::handshake,
    header::{ACCEPT, HOST},
};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::timeout};

use crate::{input::MAX_TEXT, target::shown_url};

/// The time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Parses the URL of a list.
///
/// # Errors
///
/// If the URL is invalid. The error shows the URL, without its secrets, and the remedy.
pub(super) fn url(text: &str) -> Result<Uri, String> {
    let url = text.parse::<Uri>().ok().filter(|url| url.scheme_str() == Some("http"));
    let is_complete = |url: &Uri| {
        let authority = url.authority().map_or("", |it| it.as_str());
        !authority.contains('@') && url.host().is_some_and(|host| !host.is_empty())
    };
    url.filter(is_complete).ok_or_else(|| {
        format!(
            "--targets {}: a list needs a URL such as http://127.0.0.1:8080/targets, without a user; \
             a list behind TLS or a password needs a program that writes it to a file",
            shown_url(text)
        )
    })
}

/// Fetches a text of at most 4 MiB, within ten seconds. Redirections are not followed.
///
/// # Errors
///
/// If the text cannot be fetched. The error describes the problem and the remedy.
pub(super) async fn get(url: &Uri) -> Result<String, String> {
    let late =
        |_| Err(format!("there was no complete answer within {} s", TIMEOUT.as_secs()).into());
    let body = timeout(TIMEOUT, request(url)).await.unwrap_or_else(late);
    let text = body.and_then(|body| Ok(String::from_utf8(body)?));
    text.map_err(|error| format!("{error}; check the URL and the server behind it"))
}

async fn request(url: &Uri) -> Result<Vec<u8>, Box<dyn Error>> {
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let stream = TcpStream::connect((host, url.port_u16().unwrap_or(80))).await?;
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
    let path = url.path_and_query().map_or("/", |it| it.as_str());
    let request = Request::get(path)
        .header(HOST, url.authority().map_or("", |it| it.as_str()))
        .header(ACCEPT, "application/json")
        .body(String::new())?;
    let answered = async {
        let answer = sender.send_request(request).await?;
        match answer.status() {
            StatusCode::OK => read(answer.into_body()).await,
            status => Err(format!("it answers {status}").into()),
        }
    };
    select_biased! {
        answer = pin!(answered.fuse()) => answer,
        never = pin!(connection.then(|_| pending()).fuse()) => never,
    }
}

async fn read(mut body: Incoming) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut bytes = Vec::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        bytes.extend(frame?.into_data().unwrap_or_default());
        if bytes.len() as u64 > MAX_TEXT {
            return Err(format!("it is longer than {} MiB", MAX_TEXT >> 20).into());
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn requests_end_although_a_server_is_silent_or_gone() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let url: Uri = format!("http://{}/", silent.local_addr().unwrap()).parse().unwrap();
        let check = |said: &str| {
            let error = runtime.block_on(get(&url)).unwrap_err();
            assert!(error.starts_with(said) && error.contains("; check the URL"), "{error}");
        };
        check("there was no complete answer within 10 s");
        drop(silent);
        check("Connection refused");
    }
}
