//! Tests lists in the format of Prometheus, and deployments that are watched only while requests
//! name them.

use std::{
    fs,
    io::{BufRead, BufReader, ErrorKind},
    net::TcpListener,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use super::*;

/// A server on loopback that answers each request with the current text.
struct Lists {
    address: SocketAddr,
    answer: Arc<Mutex<String>>,
}

impl Lists {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answer = Arc::<Mutex<String>>::default();
        let current = Arc::clone(&answer);
        // The thread runs until the process ends.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = BufReader::new(stream.unwrap());
                let mut line = String::new();
                while stream.read_line(&mut line).is_ok_and(|length| length > 2) {
                    line.clear();
                }
                // Ignore the error, because writing fails if the program has stopped reading.
                let _ = stream.get_mut().write_all(current.lock().unwrap().as_bytes());
            }
        });
        Self { address, answer }
    }

    fn url(&self) -> PathBuf {
        format!("http://{}/list?key=secret", self.address).into()
    }

    fn set(&self, status: &str, body: &str) {
        let answer = format!("HTTP/1.1 {status}\r\nConnection: close\r\n\r\n{body}");
        *self.answer.lock().unwrap() = answer;
    }
}

const SUCCESSFUL: &str = "sdam_config_last_reload_successful";

#[test]
fn the_last_valid_list_of_a_url_is_kept_while_there_is_none() {
    let server = Builder::standalone().start().unwrap();
    let lists = Lists::start();
    let group = |name: &str, target: &str| {
        format!(r#"{{"targets": ["{target}"], "labels": {{"deployment": "{name}"}}}}"#)
    };
    let seed = server.uri().replace("mongodb://", "");
    let valid = format!("[{}]", group("orders", &seed));
    lists.set("500 Internal Server Error", "");
    let program = Running::start_with(Arguments {
        targets: Some(lists.url()),
        refresh: Duration::from_millis(20),
        ..Arguments::default()
    });
    let name = format!("--targets http://{}/list?***", lists.address);
    let check = |said: &str| {
        let remark = program.remarks.recv().unwrap();
        let start = format!("warning: {name}: {said}");
        assert!(remark.starts_with(&start), "{remark}");
        assert!(remark.ends_with("; all deployments stay as they were"), "{remark}");
        assert!(!remark.contains("secret"), "{remark}");
        assert!(program.get("/metrics").1.contains(&format!("\n{SUCCESSFUL} 0\n")));
    };
    check("it answers 500 Internal Server Error; check the URL");
    assert_eq!(program.get("/probe?target=orders").0, 404);
    lists.set("200 OK", &valid);
    let said = program.remarks.recv().unwrap();
    assert_eq!(said, format!("{name} was read: 1 added, 0 removed, 0 unchanged"));
    assert!(program.get("/metrics").1.contains(&format!("\n{SUCCESSFUL} 1\n")));
    program.get_until("/healthz?target=orders", 200);

    lists.set("302 Found", &valid);
    check("it answers 302 Found; check the URL");
    lists.set("200 OK", &" ".repeat((4 << 20) + 1));
    check("it is longer than 4 MiB; check the URL");
    lists.set("200 OK", &valid[1..]);
    check("line 1, column ");
    let invalid = format!("[{}]", group("users", "mongodb://u:secret@h:x"));
    lists.set("200 OK", &invalid);
    check("group 1, target 1: ");
    assert_eq!(program.get("/healthz?target=orders").0, 200);

    lists.set("200 OK", &format!("[{}, {}]", group("orders", &seed), group("users", &seed)));
    let said = program.remarks.recv().unwrap();
    assert_eq!(said, format!("{name} was read: 1 added, 0 removed, 1 unchanged"));
    program.get_until("/healthz?target=users", 200);
    program.finish();
}

/// A server that accepts connections and never answers.
fn silent() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

#[test]
fn deployments_are_watched_from_the_first_request_until_they_are_forgotten() {
    let [(asked, name), (other, other_name)] = [(); 2].map(|()| silent());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("targets.json");
    fs::write(&file, format!(r#"[{{"targets": ["{name}", "{other_name}"]}}]"#)).unwrap();
    let program = Running::start_with(Arguments {
        targets: Some(file),
        forget: Some(Duration::from_millis(500)),
        ..Arguments::default()
    });
    let dialled = |listener: &TcpListener| match listener.accept() {
        Ok((stream, _)) => Some(stream),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            None
        }
    };
    let series = format!("sdam_known{{deployment=\"{name}\"}} 0\n");
    let is_watched = || program.get("/metrics").1.contains(&series);
    for _ in 0..2 {
        assert!(!is_watched() && dialled(&asked).is_none());
        // Encode the name as Prometheus does.
        let encoded = name.to_string().replace(':', "%3A");
        let (status, page) = program.get(&format!("/probe?target={encoded}"));
        // A deployment that has not been checked yet must not appear to be down.
        assert_eq!((status, page.lines().count()), (200, 4), "{page}");
        assert!(page.contains(&series), "{page}");
        let mut streams = Vec::new();
        while is_watched() || streams.is_empty() {
            streams.extend(dialled(&asked));
        }
        while dialled(&asked).is_some() {}
    }
    for unlisted in [format!("mongodb://{other_name}"), "127.0.0.1:1".to_owned()] {
        assert_eq!(program.get(&format!("/probe?target={unlisted}")).0, 404);
    }
    assert!(dialled(&other).is_none());
    program.finish();
}
