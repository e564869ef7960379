//! Servers that fail during authentication.

use std::time::{Duration, Instant};

use bson::doc;
use futures::executor::block_on;
use sdam::{Criteria, ErrorKind, ErrorOutcome, Options, Stage, Topology};
use sdam_live::{FailCommand, Mongod, ROOT};
use sdam_pool::Pools;

use super::client::{Client, PATIENCE, is_before_4_4, is_before_5_0, secured};
use crate::runtime::Host;

/// Returns the number of the server's open connections.
fn connections(mongod: &Mongod) -> i32 {
    let status = mongod.run_command("admin", doc! { "serverStatus": 1 });
    let status = status.unwrap();
    let connections = status.get_document("connections").unwrap();
    connections.get_i32("current").unwrap()
}

/// Waits until the server has no more than `count` connections.
fn wait_for_connections(mongod: &Mongod, count: i32) {
    let begin = Instant::now();
    while connections(mongod) > count {
        assert!(begin.elapsed() < PATIENCE, "a connection has leaked");
    }
}

#[test]
fn a_failure_at_each_command_is_an_authentication_error_and_leaks_no_connection() {
    // I-14
    let Some(mongod) = secured() else { return };
    if is_before_4_4(&mongod) {
        // On this version, fail points cannot be limited to one application.
        return;
    }
    let client = Client::start(&mongod, "root:root@", "", false);
    client.open().unwrap().close();
    let before = connections(&mongod);
    let check = |fail: FailCommand, timeout: Duration, kind: ErrorKind, code: Option<i32>| {
        let point = mongod.fail_command(fail.app_name("auth")).unwrap();
        let error = client.open_within(timeout).unwrap_err();
        drop(point);
        assert_eq!((error.kind(), error.code()), (kind, code), "{error}");
        assert_eq!(error.stage(), Stage::Auth);
        assert_eq!(error.labels().len(), 0);
        assert_eq!(error.outcome(), Some(ErrorOutcome::Cleared));
        client.assert_lost();
        wait_for_connections(&mongod, before);
    };
    for command in ["saslStart", "saslContinue"] {
        let fail = || FailCommand::new([command]);
        for code in [18, 91, 10107] {
            let kind = ErrorKind::Command;
            check(fail().error_code(code), PATIENCE, kind, Some(code));
        }
        check(
            fail().close_connection(),
            PATIENCE,
            ErrorKind::Network,
            None,
        );
        let slow = fail().block_for(Duration::from_secs(5)).times(1);
        check(slow, Duration::from_secs(2), ErrorKind::Timeout, None);
    }
    client.open().unwrap().close();
    client.finish();
}

#[test]
fn a_refused_hello_is_an_authentication_error() {
    // I-21
    let Some(mongod) = secured() else { return };
    if is_before_5_0(&mongod) {
        // On this version, the handshake itself never fails.
        return;
    }
    for (user_info, stage) in [("root:root@", Stage::Auth), ("", Stage::Hello)] {
        let client = Client::start(&mongod, user_info, "", true);
        let hello = FailCommand::new(["hello", "isMaster"]).error_code(91);
        let fail = || mongod.fail_command(hello.app_name("auth")).unwrap();
        let error = client.open_after(fail, PATIENCE).unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::Command, Some(91)));
        assert_eq!(error.stage(), stage);
        client.open().unwrap().close();
        client.finish();
    }
}

#[test]
fn a_pool_keeps_no_connection_that_was_refused_and_recovers_with_the_right_password() {
    // I-14, I-19
    let Some(mongod) = secured() else { return };
    let start = |password: &str| {
        let (user, host) = (ROOT.0, mongod.host());
        let uri = format!("mongodb://{user}:{password}@{host}/?heartbeatFrequencyMS=500");
        let options = Options::parse(&uri).unwrap();
        let authenticator = sdam_auth::authenticator(&options).unwrap();
        let pools = Pools::authenticated(&options, authenticator.unwrap()).unwrap();
        let host = Host::start();
        let builder = Topology::builder(&uri).unwrap().pools(pools);
        (builder.start(host.runtime.clone()).unwrap(), host)
    };
    let (topology, _host) = start("wrong");
    block_on(async {
        for _ in 0..3 {
            let server = topology.select(&Criteria::write()).await.unwrap();
            server.pool().check_out().await.unwrap_err();
            assert_eq!(server.pool().stats().opened, 0);
        }
        topology.close().await;
    });
    let (topology, _host) = start(ROOT.1);
    block_on(async {
        let server = topology.select(&Criteria::write()).await.unwrap();
        let mut connection = server.pool().check_out().await.unwrap();
        let command = doc! { "dbStats": 1, "$db": "test" }.to_vec().unwrap();
        let reply = connection.run_command(&command, Some(PATIENCE)).await;
        reply.unwrap();
        drop(connection);
        topology.close().await;
    });
}
