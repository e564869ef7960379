//! Tests selection among real members that have tags, with one member that lags behind.
//!
//! Members with a configured delay cannot be used, because no member announces them to clients.

use std::{collections::BTreeSet, time::Instant};

use sdam::{PoolHandle, ReadPreference, ServerDescription};
use sdam_core::read_preference::TagSet;
use sdam_select::{
    command::{Additions, Opcode},
    explain::{Rejection, Verdict, explain},
    settings::Settings,
};

use super::*;

/// An upper bound for the time between checks of different members that were requested together.
const ROUND: Duration = Duration::from_secs(3);

/// The heartbeat frequency, chosen so that a lag of ten seconds exceeds the limit: the estimated
/// staleness is the lag plus the frequency, and the minimum limit is ten seconds more than the
/// frequency.
const FREQUENCY: Duration = Duration::from_secs(500);
/// The minimum staleness limit for this heartbeat frequency.
const LIMIT: Duration = Duration::from_secs(510);

/// Starts a primary and two secondaries, each with a different tag. Neither secondary can be
/// elected, however slow the machine is.
fn tagged_set() -> Option<ReplicaSet> {
    let set = ReplicaSet::builder(version()).election_timeout(PATIENCE);
    let members = [
        MemberSpec::new().priority(2.0).tag("dc", "ny"),
        MemberSpec::new().tag("dc", "la").tag("rack", "1"),
        MemberSpec::new().priority(0.0).tag("dc", "eu"),
    ];
    or_skip(set.start(&members)).unwrap()
}

fn observe(set: &ReplicaSet) -> Observer {
    let uri = format!(
        "{}&heartbeatFrequencyMS={}&serverMonitoringMode=poll&localThresholdMS=60000",
        set.uri(),
        FREQUENCY.as_millis(),
    );
    let observer = Observer::start(&uri);
    // Members that have just started may change their state several times before the set is
    // complete.
    let complete = observer
        .topology
        .wait_for(|snapshot| is_complete(snapshot.description()).then_some(()), PATIENCE);
    block_on(complete).unwrap();
    observer
}

fn read(mode: ReadMode, tags: &[&str]) -> Criteria {
    let tags = tags.iter().map(|dc| [("dc", *dc)].into_iter().collect::<TagSet>());
    let preference = ReadPreference::new(mode).with_tag_sets(tags.collect());
    Criteria::read(preference).unwrap()
}

/// Returns the hosts that were chosen in a large number of selections.
fn selected<P: PoolHandle>(topology: &Topology<P>, criteria: &Criteria) -> BTreeSet<String> {
    let select = || block_on(topology.select(criteria)).unwrap();
    (0..50).map(|_| select().address().to_string()).collect()
}

fn write(member: &Mongod) -> Result<Document, sdam_live::Error> {
    member.run_command("test", doc! { "insert": "writes", "documents": [{}] })
}

fn described<'t>(topology: &'t TopologyDescription, host: &str) -> &'t ServerDescription {
    topology.server(&host.parse().unwrap()).unwrap()
}

/// Returns the number of milliseconds by which `late` lags behind the primary, according to the Max
/// Staleness formula.
fn lag(topology: &TopologyDescription, late: &str) -> Option<i64> {
    let behind = |server: &ServerDescription| {
        let updated = server.last_update_time?.as_nanos() / 1_000_000;
        Some(updated as i64 - server.last_write_date?)
    };
    Some(behind(described(topology, late))? - behind(topology.primary()?)?)
}

/// L-21, L-23: the staleness of a lagging member is estimated from hello replies alone.
#[test]
#[ignore = "deep: real servers"]
fn a_member_above_max_staleness_is_not_selected() {
    let Some(set) = tagged_set() else { return };
    let observer = observe(&set);
    let topology = &observer.topology;
    let (prompt, late) = (set.member(1).host(), set.member(2).host());
    let preference = ReadPreference::new(ReadMode::Secondary).with_max_staleness(LIMIT);
    let criteria = Criteria::read(preference).unwrap();

    // The primary keeps writing while the lagging member applies no writes, until that member is
    // ten seconds behind.
    let stop = doc! { "configureFailPoint": "rsSyncApplyStop", "mode": "alwaysOn" };
    set.member(2).run_command("admin", stop).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let allowed = (LIMIT.checked_sub(FREQUENCY).unwrap()).as_millis() as i64;
    // Waits until the lag is so large that checks still in progress do not change the result.
    let clearly = allowed + ROUND.as_millis() as i64;
    let description = loop {
        assert!(Instant::now() < deadline, "{:?}", topology.snapshot());
        write(set.member(0)).unwrap();
        topology.request_check();
        let found = topology.wait_for(
            |snapshot| {
                let description = snapshot.description();
                (lag(description, &late)? > clearly && lag(description, &prompt)? < allowed)
                    .then(|| description.clone())
            },
            Duration::from_secs(1),
        );
        if let Some(description) = block_on(found) {
            break description;
        }
    };

    let explanation = explain(&description, &Settings::new(topology.options()), &criteria);
    let verdict = |host: &str| {
        let mut servers = explanation.servers.iter();
        let server = servers.find(|server| server.address.as_str() == host);
        &server.unwrap().verdict
    };
    assert!(matches!(verdict(&prompt), Verdict::Eligible { .. }));
    let Verdict::Rejected(Rejection::Stale { staleness, limit }) = verdict(&late) else {
        panic!("{explanation:#}");
    };
    assert_eq!(*limit, LIMIT);
    let expected = lag(&description, &late).unwrap() + FREQUENCY.as_millis() as i64;
    let off = expected - staleness.as_millis() as i64;
    assert!(off.abs() <= 1, "{staleness:?} instead of {expected} ms");
    // The date of the member's last write, as reported by the member. It does not change, because
    // the member applies no writes.
    let hello = set.member(2).hello().unwrap();
    let last_write = hello.get_document("lastWrite").unwrap();
    assert_eq!(
        described(&description, &late).last_write_date,
        Some(last_write.get_datetime("lastWriteDate").unwrap().timestamp_millis())
    );
    assert_eq!(selected(topology, &criteria), [prompt.clone()].into());
    let any = read(ReadMode::Secondary, &[]);
    assert_eq!(selected(topology, &any), [prompt, late].into());
    observer.finish();
}

/// L-70, L-79: a directly connected secondary serves reads without an explicit read preference. It
/// can be selected for writes, but then refuses them.
#[test]
#[ignore = "deep: real servers"]
fn a_directly_connected_secondary_serves_reads_and_refuses_writes() {
    let Some(set) = replica_set() else { return };
    let secondary = set.member(set.secondaries()[0]);
    let uri = format!("mongodb://{}/?directConnection=true", secondary.host());
    let observer = Observer::start(&uri);
    let topology = &observer.topology;
    let reading = block_on(topology.select(&read(ReadMode::Primary, &[]))).unwrap();
    assert_eq!(reading.topology_type(), TopologyType::Single);
    assert_eq!(reading.server_type(), ServerType::RsSecondary);
    let find = doc! { "find": "writes", "filter": {} };
    let bare = secondary.run_command("test", find.clone());
    assert_eq!(bare.unwrap_err().code(), Some(13435));
    let preference = ReadPreference::default();
    let additions = Additions::for_read(
        reading.topology_type(),
        reading.server_type(),
        Some(&preference),
        Opcode::Msg,
    );
    let command = additions.read_preference.unwrap();
    let command = command.append_to(&find.to_vec().unwrap()).unwrap();
    let command = Document::from_reader(&*command).unwrap();
    secondary.run_command("test", command).unwrap();

    let writing = block_on(topology.select(&Criteria::write())).unwrap();
    assert_eq!(writing.address(), reading.address());
    assert_eq!(write(secondary).unwrap_err().code(), Some(10107));
    drop((reading, writing));
    observer.finish();
}
