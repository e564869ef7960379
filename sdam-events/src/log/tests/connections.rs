//! Messages about pools, connections and commands.

use std::{sync::Arc, time::Duration};

use bson::doc;
use sdam_core::{
    error::{Error, ErrorKind, Stage},
    event::{CheckOutFailure, ConnectionClosedReason, EventKind},
    ids::{Generation, ObjectId, ServerId},
    pool::{PoolClear, PoolOptions},
};

use super::{super::LogMessage, ID, Severity, check};
use crate::test_support::{address, command, connection, event};

const CONNECTION: (&str, Severity) = ("connection", Severity::Debug);
const COMMAND: (&str, Severity) = ("command", Severity::Debug);
const SERVICE: &str = "020202020202020202020202";

fn server() -> ServerId {
    ServerId::from_u64(1)
}

fn reset() -> Error {
    Error::new(ErrorKind::Network, Stage::Operation, "reset")
}

/// Checks a message about the pool of `host1` with these fields in addition to the common ones.
fn check_pool(kind: EventKind, text: &str, own: &[(&'static str, &str)], sentence: &str) {
    let common = [
        ("topologyId", ID),
        ("serverHost", "host1"),
        ("serverPort", "27017"),
    ];
    check(kind, CONNECTION, text, &[&common, own].concat(), sentence);
}

#[test]
fn pools_have_the_specified_messages() {
    // K-11
    let (server, address) = (server(), address("host1"));
    let created = |change: fn(&mut PoolOptions)| {
        let mut options = PoolOptions::default();
        change(&mut options);
        EventKind::PoolCreated {
            server,
            address: address.clone(),
            options: Arc::new(options),
        }
    };
    let text = "Connection pool created";
    check_pool(
        created(|_| {}),
        text,
        &[],
        "Connection pool created for host1:27017",
    );
    check_pool(
        created(|options| {
            options.max_idle_time = Some(Duration::from_millis(5));
            options.min_pool_size = 1;
            options.max_pool_size = 0;
            options.max_connecting = 3;
            options.wait_queue_timeout = Some(Duration::from_millis(7));
        }),
        text,
        &[
            ("maxIdleTimeMS", "5"),
            ("minPoolSize", "1"),
            ("maxPoolSize", "0"),
            ("maxConnecting", "3"),
            ("waitQueueTimeoutMS", "7"),
        ],
        "Connection pool created for host1:27017 using options maxIdleTimeMS=5, minPoolSize=1, \
         maxPoolSize=0, maxConnecting=3, waitQueueTimeoutMS=7",
    );
    check_pool(
        EventKind::PoolReady {
            server,
            address: address.clone(),
        },
        "Connection pool ready",
        &[],
        "Connection pool ready for host1:27017",
    );
    check_pool(
        EventKind::PoolClosed { server, address },
        "Connection pool closed",
        &[],
        "Connection pool closed for host1:27017",
    );
}

#[test]
fn a_clear_is_logged_with_its_service_unless_the_pool_was_paused() {
    // K-11
    let mut clear = PoolClear::new(Generation::from_u64(1), reset());
    let cleared = |clear: &PoolClear| EventKind::PoolCleared {
        server: server(),
        address: address("host1"),
        clear: clear.clone(),
    };
    let (text, sentence) = (
        "Connection pool cleared",
        "Connection pool for host1:27017 cleared",
    );
    check_pool(cleared(&clear), text, &[], sentence);
    // F-63
    clear.was_paused = true;
    assert!(LogMessage::of(&event(cleared(&clear)), 1000).is_none());
    clear.was_paused = false;
    clear.service_id = Some(ObjectId::from_bytes([2; 12]));
    check_pool(
        cleared(&clear),
        text,
        &[("serviceId", SERVICE)],
        &format!("{sentence} for serviceId {SERVICE}"),
    );
}

#[test]
fn connections_have_the_specified_messages() {
    // K-11
    let (server, address, connection) = (server(), address("host1"), connection());
    let duration = Duration::from_micros(1500);
    let ids = [("driverConnectionId", "3"), ("serverConnectionId", "4")];
    check_pool(
        EventKind::ConnectionCreated {
            server,
            address: address.clone(),
            connection,
        },
        "Connection created",
        &ids,
        "Connection created: address=host1:27017, driver-generated ID=3",
    );
    check_pool(
        EventKind::ConnectionReady {
            server,
            address: address.clone(),
            connection,
            duration,
        },
        "Connection ready",
        &[&ids[..], &[("durationMS", "1.5")]].concat(),
        "Connection ready: address=host1:27017, driver-generated ID=3, established in=1.5 ms",
    );
    check_pool(
        EventKind::ConnectionCheckedOut {
            server,
            address: address.clone(),
            connection,
            duration,
        },
        "Connection checked out",
        &[&ids[..], &[("durationMS", "1.5")]].concat(),
        "Connection checked out: address=host1:27017, driver-generated ID=3, duration=1.5 ms",
    );
    check_pool(
        EventKind::ConnectionCheckedIn {
            server,
            address,
            connection,
        },
        "Connection checked in",
        &ids,
        "Connection checked in: address=host1:27017, driver-generated ID=3",
    );
}

#[test]
fn a_closed_connection_is_logged_with_the_specified_reason() {
    // K-11
    let ids = [("driverConnectionId", "3"), ("serverConnectionId", "4")];
    let check_closed = |reason, error: Option<Error>, text: &str| {
        let shown = error.as_ref().map(ToString::to_string);
        let own = [("reason", text)];
        let error_field = shown.as_deref().map(|error| ("error", error));
        let fields: Vec<_> = ids.into_iter().chain(own).chain(error_field).collect();
        let end = shown.as_ref().map(|error| format!(". Error: {error}"));
        let sentence = format!(
            "Connection closed: address=host1:27017, driver-generated ID=3. Reason: {text}{}",
            end.unwrap_or_default()
        );
        let kind = EventKind::ConnectionClosed {
            server: server(),
            address: address("host1"),
            connection: connection(),
            reason,
            error,
        };
        check_pool(kind, "Connection closed", &fields, &sentence);
    };
    check_closed(
        ConnectionClosedReason::Stale,
        None,
        "Connection became stale because the pool was cleared",
    );
    check_closed(
        ConnectionClosedReason::Idle,
        None,
        "Connection has been available but unused for longer than the configured max idle time",
    );
    check_closed(
        ConnectionClosedReason::Error,
        Some(reset()),
        "An error occurred while using the connection",
    );
    check_closed(
        ConnectionClosedReason::PoolClosed,
        None,
        "Connection pool was closed",
    );
}

#[test]
fn check_outs_have_the_specified_messages_and_name_the_error_of_a_connection() {
    // K-11
    let (server, address) = (server(), address("host1"));
    check_pool(
        EventKind::ConnectionCheckOutStarted {
            server,
            address: address.clone(),
        },
        "Connection checkout started",
        &[],
        "Checkout started for connection to host1:27017",
    );
    let check_failed = |reason, text: &str, names_error: bool| {
        let kind = EventKind::ConnectionCheckOutFailed {
            server,
            address: address.clone(),
            reason,
            failure: "refused".into(),
            duration: Duration::from_millis(2),
        };
        let mut fields = vec![("reason", text), ("durationMS", "2")];
        if names_error {
            fields.push(("error", "refused"));
        }
        let error = if names_error { ". Error: refused" } else { "" };
        let sentence = format!(
            "Checkout failed for connection to host1:27017. Reason: {text}{error}. Duration: 2 ms"
        );
        check_pool(kind, "Connection checkout failed", &fields, &sentence);
    };
    check_failed(
        CheckOutFailure::Timeout,
        "Wait queue timeout elapsed without a connection becoming available",
        false,
    );
    check_failed(
        CheckOutFailure::PoolClosed,
        "Connection pool was closed",
        false,
    );
    check_failed(
        CheckOutFailure::ConnectionError,
        "An error occurred while trying to establish a new connection",
        true,
    );
}

#[test]
fn commands_have_the_specified_messages_and_sensitive_ones_are_redacted() {
    let common = [
        ("databaseName", "db"),
        ("requestId", "7"),
        ("operationId", "42"),
        ("serverHost", "host1"),
        ("serverPort", "27017"),
        ("driverConnectionId", "3"),
        ("serverConnectionId", "4"),
        ("serviceId", SERVICE),
    ];
    let duration = Duration::from_micros(1500);
    // The error of a broken connection contains nothing about the command.
    let error = "network error at operation: reset";
    let check_command = |name: &'static str, shown: &str, reply: &str| {
        let (info, document) = command(&doc! { name: 1 });
        let of_message = |step: &str, time: &str, key: &'static str, label: &str, value: &str| {
            let mut fields = vec![("commandName", name), (key, value)];
            if !time.is_empty() {
                fields.push(("durationMS", "1.5"));
            }
            let sentence = format!(
                "Command \"{name}\" {step} on database \"db\"{time} using a connection with \
                 driver-generated ID 3 and server-generated ID 4 to host1:27017 with service ID \
                 {SERVICE}. The requestID is 7 and the operation ID is 42. {label}: {value}"
            );
            let kind = match step {
                "started" => info.started(&document),
                "succeeded" => info.succeeded(duration, &doc! { "ok": 1 }.to_vec().unwrap()),
                _ => info.failed(duration, reset()),
            };
            let fields = [&common[..], &fields].concat();
            check(
                kind,
                COMMAND,
                &format!("Command {step}"),
                &fields,
                &sentence,
            );
        };
        of_message("started", "", "command", "Command", shown);
        of_message("succeeded", " in 1.5 ms", "reply", "Command reply", reply);
        of_message("failed", " in 1.5 ms", "failure", "Error", error);
    };
    check_command("ping", r#"{"ping":1}"#, r#"{"ok":1}"#);
    check_command("saslStart", "{}", "{}");
}
