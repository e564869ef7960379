//! The prose tests of Polling SRV Records for mongos Discovery.

use sdam_live::{Dns, Record, RecordType};

use crate::world::*;

/// Replaces the ports of `test1`, and waits for the `expected` ports.
fn check(query: &str, after: &[u16], expected: impl Fn(&[u16]) -> bool) {
    let Some(world) = World::start() else { return };
    // A look-up may take several seconds of real time.
    let query = format!("connectTimeoutMS=2000000&{query}");
    let change = |dns: &Dns| dns.set(records(TEST1, after)).unwrap();
    world.check((TEST1, &query), &[27017, 27018], change, expected);
}

#[test]
fn prose_1_a_new_record_adds_a_server() {
    // N-20, N-24
    let after = [27017, 27018, 27019];
    check("", &after, |ports| ports == after);
}

#[test]
fn prose_2_a_removed_record_removes_its_server() {
    // N-24
    check("", &[27017], |ports| ports == [27017]);
}

#[test]
fn prose_3_a_replaced_record_replaces_its_server() {
    check("", &[27017, 27019], |ports| ports == [27017, 27019]);
}

#[test]
fn prose_4_one_record_replaces_both() {
    check("", &[27019], |ports| ports == [27019]);
}

#[test]
fn prose_5_two_records_replace_both() {
    check("", &[27019, 27020], |ports| ports == [27019, 27020]);
}

#[test]
fn prose_6_a_look_up_that_times_out_changes_nothing() {
    // N-23
    let Some(world) = World::start() else { return };
    let fail = |dns: &Dns| dns.sigstop().unwrap();
    let heal = |dns: &Dns| dns.sigcont().unwrap();
    world.check_failure("connectTimeoutMS=100000", fail, heal, "no answer");
}

#[test]
fn prose_7_a_look_up_of_a_name_that_is_gone_changes_nothing() {
    // N-23
    let Some(world) = World::start() else { return };
    let fail = |dns: &Dns| dns.remove(TEST1, RecordType::Srv).unwrap();
    let query = "connectTimeoutMS=2000000";
    world.check_failure(query, fail, |_| {}, "the name has no SRV record");
}

#[test]
fn prose_8_a_name_without_srv_records_changes_nothing() {
    // N-23
    let Some(world) = World::start() else { return };
    let fail = |dns: &Dns| {
        dns.set([Record::txt(TEST1, ["nothing"])]).unwrap();
        dns.remove(TEST1, RecordType::Srv).unwrap();
    };
    let query = "connectTimeoutMS=2000000";
    world.check_failure(query, fail, |_| {}, "the name has no SRV record");
}

#[test]
fn prose_9_behind_a_load_balancer_the_record_is_not_polled() {
    // N-20
    const TEST3: &str = "_mongodb._tcp.test3.test.build.10gen.cc";
    let Some(world) = World::start() else { return };
    let change = |dns: &Dns| dns.set(records(TEST3, &[27017, 27018])).unwrap();
    let query = "connectTimeoutMS=2000000&loadBalanced=true";
    world.check_not_polled(TEST3, query, change);
}

#[test]
fn prose_10_srv_max_hosts_of_zero_takes_all_records() {
    // N-25
    let after = [27017, 27019, 27020];
    check("srvMaxHosts=0", &after, |ports| ports == after);
}

#[test]
fn prose_11_as_many_records_as_srv_max_hosts_are_all_taken() {
    // N-25
    let after = [27019, 27020];
    check("srvMaxHosts=2", &after, |ports| ports == after);
}

#[test]
fn prose_12_beyond_srv_max_hosts_new_hosts_are_chosen_at_random() {
    // N-25
    check("srvMaxHosts=2", &[27017, 27019, 27020], |ports| {
        matches!(ports, [27017, 27019 | 27020])
    });
}

#[test]
fn prose_13_the_record_of_another_service_is_polled() {
    const TEST22: &str = "_customname._tcp.test22.test.build.10gen.cc";
    let Some(world) = World::start() else { return };
    let after = [27019, 27020];
    let change = |dns: &Dns| dns.set(records(TEST22, &after)).unwrap();
    let query = "connectTimeoutMS=2000000&srvServiceName=customname";
    world.check((TEST22, query), &[27017, 27018], change, |ports| {
        ports == after
    });
}
