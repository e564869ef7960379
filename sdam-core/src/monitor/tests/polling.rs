//! Tests of polling: timing, requested checks, negotiation, and round-trip times.

use std::{sync::Arc, time::Duration};

use super::{super::*, script::*};
use crate::{
    deployment::{Output, Outputs},
    error::{Error, ErrorKind, Stage},
    event::EventKind,
    hello::HelloReply,
};

#[test]
fn durations_and_samples_are_the_time_on_the_wire_whenever_the_reply_is_processed() {
    // The time between the reply's arrival and its processing does not count (J-7, G-5).
    let at = Instant::from_millis;
    let twenty = Duration::from_millis(20);
    let run = |pass: &dyn Fn(&mut Check, &mut Outputs) -> Option<CheckOutcome>| {
        let mut check = checks(polling());
        let mut out = Outputs::default();
        assert!(check.due(at(0), false, &mut out).is_none());
        check.connected(at(5), &mut out);
        pass(&mut check, &mut out).unwrap();
        let next = check.deadline();
        assert_eq!(next, Some(at(19_000)), "the pause begins with the call");
        let took = out.iter().find_map(|output| match output {
            Output::Emit(
                EventKind::ServerHeartbeatSucceeded { duration, .. }
                | EventKind::ServerHeartbeatFailed { duration, .. },
            ) => Some(*duration),
            _ => None,
        });
        assert_eq!(took, Some(twenty));
    };
    run(&|check, out| {
        let trip = Trip::new(at(7), at(27), at(9_000));
        assert_eq!(check.sample(trip), Some(twenty));
        let reply = HelloReply::parse(encode(&old()));
        check.reply(at(9_000), false, trip, reply, false, out)
    });
    run(&|check, out| {
        let error = Error::new(ErrorKind::Network, Stage::Hello, "reset");
        check.failed(at(9_000), false, at(25), error, out)
    });
}

#[test]
fn the_handshake_is_the_first_check_and_later_hellos_have_no_arguments_of_it() {
    // The check begins with connecting, but its duration and the sample begin with the hello. The
    // duration of a poll is also a sample (F-6, F-8, F-9, G-4, G-6, J-10, J-30).
    check(
        polling(),
        &[
            (0, Say::Start, "started #1, connect | 10000"),
            (30, Say::Connected, "send isMaster handshake | 10030"),
            (35, says(old()), "sample 5, succeeded #1/42 after 5, report Standalone | 10035"),
            (10_035, Say::Due, "started #1/42, send hello | 20035"),
            (10_042, says(old()), "sample 7, succeeded #1/42 after 7, report Standalone | 20042"),
        ],
    );
}

#[test]
fn a_request_during_a_check_is_ignored() {
    // Ignored requests are not remembered (F-41, F-42).
    check(
        polling(),
        &[
            (0, Say::Start, "started #1, connect | 10000"),
            (1, Say::Request, "| 10000"),
            (2, Say::Connected, "send isMaster handshake | 10002"),
            (3, Say::Request, "| 10002"),
            (4, says(old()), "sample 2, succeeded #1/42 after 2, report Standalone | 10004"),
        ],
    );
}

#[test]
fn hello_is_sent_if_the_last_reply_had_hello_ok() {
    // Only a declared API requires `hello` without `helloOk` (F-6, F-7).
    let declined = bson::doc! { "ok": 1, "maxWireVersion": 8 };
    let script = [
        (0, Say::Start, "started #1, connect | 10000"),
        (0, Say::Connected, "send isMaster handshake | 10000"),
        (0, says(old()), "sample 0, succeeded #1/42 after 0, report Standalone | 10000"),
        (10_000, Say::Due, "started #1/42, send hello | 20000"),
        (10_000, says(declined), "sample 0, succeeded #1/42 after 0, report Standalone | 20000"),
        (20_000, Say::Due, "started #1/42, send isMaster | 30000"),
    ];
    check(polling(), &script);
}

#[test]
fn only_hello_is_sent_with_a_declared_api_or_to_a_load_balancer() {
    // A declared API requires `hello`, regardless of `helloOk` in the reply (F-5, F-7).
    let run = |config: MonitorConfig, api: &str| {
        let first = std::format!("send hello handshake{api} | 10000");
        let later = std::format!("started #1, send hello{api} | 20000");
        let reply = bson::doc! { "ok": 1, "maxWireVersion": 8 };
        let script = [
            (0, Say::Start, "started #1, connect | 10000"),
            (0, Say::Connected, &first),
            (0, says(reply), "sample 0, succeeded #1 after 0, report Standalone | 10000"),
            (10_000, Say::Due, &later),
        ];
        check(config, &script);
    };
    let mut declared = polling();
    declared.server_api = Some(Arc::new(ServerApi::v1()));
    run(declared, " api 1");
    let mut balanced = polling();
    balanced.handshake = Arc::new(Handshake::new([]).with_load_balanced(true));
    run(balanced, "");
}

#[test]
fn op_query_is_used_until_a_reply_shows_support_of_op_msg() {
    // Before MongoDB 3.6, servers do not support OP_MSG (O-2).
    let mut options = options();
    options.handshake_opcode = HandshakeOpcode::OpQuery;
    let script = |wire: i32, later| {
        [
            (0, Say::Start, "started #1, connect | 10000"),
            (0, Say::Connected, "send isMaster handshake op_query | 10000"),
            (
                0,
                says(bson::doc! { "ok": 1, "maxWireVersion": wire }),
                "sample 0, succeeded #1 after 0, report Standalone | 10000",
            ),
            (10_000, Say::Due, later),
        ]
    };
    let op_query = "started #1, send isMaster op_query | 20000";
    check(config(&options), &script(5, op_query));
    let op_msg = "started #1, send isMaster | 20000";
    check(config(&options), &script(6, op_msg));
}

#[test]
fn a_connection_that_an_operation_closed_is_replaced_by_the_next_check() {
    let script = [
        (0, Say::Start, "started #1, connect | 10000"),
        (0, Say::Connected, "send isMaster handshake | 10000"),
        (0, says(old()), "sample 0, succeeded #1/42 after 0, report Standalone | 10000"),
        (10_000, Say::Due, "started #1/42, send hello | 20000"),
        // No operation uses the connection while the check runs, so this input is ignored.
        (10_001, Say::Disconnected, "| 20000"),
        (10_002, says(old()), "sample 2, succeeded #1/42 after 2, report Standalone | 20002"),
        (10_100, Say::Disconnected, "| 20002"),
        // The closed connection has not changed the server's description.
        (20_002, Say::Due, "started #2, connect | 30002"),
        (
            20_003,
            Say::Failed(ErrorKind::Network),
            "disconnect, failed #2 after 1: Network, report Network | 20003",
        ),
    ];
    check(polling(), &script);
}
