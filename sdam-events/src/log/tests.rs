use std::{collections::BTreeMap, sync::Arc};

use bson::doc;
use sdam_core::{
    error::{Error, ErrorKind, Stage},
    event::{ConnectionId, EventKind, EventName, Heartbeat},
    ids::ServerId,
    server::ServerType,
    topology::{DepartureReason, Obstacle, TopologyDescription, TopologyType},
};

mod connections;

use super::{Component, DEFAULT_MAX_DOCUMENT_LENGTH, LogConfig, LogMessage, LogOutput, Severity};
use crate::{
    sink::Interest,
    test_support::{
        TOPOLOGY, address, description, event, failed, opening, started, succeeded,
        topology_changed,
    },
};

const REASON: &str = "belongs to the set `rs0`, not `wrong`: use replicaSet=rs0";
const ID: &str = "070707070707070707070707";

const REPLY_ID: bson::oid::ObjectId = bson::oid::ObjectId::from_bytes([1; 12]);

/// Checks the text, the severity, the exact fields as displayed, and the unstructured sentence.
fn check(
    kind: EventKind,
    (component, severity): (&str, Severity),
    text: &str,
    fields: &[(&'static str, &str)],
    sentence: &str,
) {
    let event = event(kind);
    let message = LogMessage::of(&event, DEFAULT_MAX_DOCUMENT_LENGTH).unwrap();
    assert_eq!(message.text(), text);
    assert_eq!(message.severity(), severity, "{text}");
    assert_eq!(message.component().as_str(), component, "{text}");
    let mut shown = BTreeMap::new();
    message.fields().for_each(|name, value| {
        assert_eq!(shown.insert(name, value.to_string()), None);
    });
    let expected = fields
        .iter()
        .map(|(name, value)| (*name, (*value).to_owned()));
    assert_eq!(shown, expected.collect(), "{text}");
    assert_eq!(message.to_string(), sentence);
}

const TOPOLOGY_DEBUG: (&str, Severity) = ("topology", Severity::Debug);

fn sharded() -> TopologyDescription {
    TopologyDescription::new(TopologyType::Sharded, [description(1, ServerType::Mongos)])
}

#[test]
fn openings_and_closings_have_the_specified_messages() {
    // K-1, K-4, K-5
    check(
        EventKind::TopologyOpening,
        TOPOLOGY_DEBUG,
        "Starting topology monitoring",
        &[("topologyId", ID)],
        &format!("Starting monitoring for topology with ID {ID}"),
    );
    check(
        EventKind::TopologyClosed,
        TOPOLOGY_DEBUG,
        "Stopped topology monitoring",
        &[("topologyId", ID)],
        &format!("Stopped monitoring for topology with ID {ID}"),
    );
    check(
        opening(1),
        TOPOLOGY_DEBUG,
        "Starting server monitoring",
        &[
            ("topologyId", ID),
            ("serverHost", "host1"),
            ("serverPort", "27017"),
        ],
        &format!("Starting monitoring for server host1:27017 in topology with ID {ID}"),
    );
    let closed = |text| EventKind::ServerClosed {
        server: ServerId::from_u64(1),
        address: address(text),
        reason: DepartureReason::WrongSetName {
            found: Some("rs0".into()),
            wanted: "wrong".into(),
        },
    };
    check(
        closed("[::1]:5"),
        TOPOLOGY_DEBUG,
        "Stopped server monitoring",
        &[
            ("topologyId", ID),
            ("serverHost", "::1"),
            ("serverPort", "5"),
            ("reason", REASON),
        ],
        &format!(
            "Stopped monitoring for server [::1]:5 in topology with ID {ID}. Reason: it {REASON}"
        ),
    );
    // A Unix domain socket has no port.
    check(
        closed("/tmp/x.sock"),
        TOPOLOGY_DEBUG,
        "Stopped server monitoring",
        &[
            ("topologyId", ID),
            ("serverHost", "/tmp/x.sock"),
            ("reason", REASON),
        ],
        &format!(
            "Stopped monitoring for server /tmp/x.sock in topology with ID {ID}. Reason: it {REASON}"
        ),
    );
}

#[test]
fn topology_changes_log_both_descriptions_and_server_changes_log_nothing() {
    // K-2, K-5
    let (old, new) = (TopologyDescription::default(), sharded());
    check(
        topology_changed(&old, &new),
        TOPOLOGY_DEBUG,
        "Topology description changed",
        &[
            ("topologyId", ID),
            ("previousDescription", &old.to_string()),
            ("newDescription", &new.to_string()),
        ],
        &format!(
            "Description changed for topology with ID {ID}. Previous description: {old}. New \
             description: {new}"
        ),
    );
    let server = Arc::new(description(1, ServerType::Mongos));
    let silent = event(EventKind::ServerDescriptionChanged {
        previous: Arc::clone(&server),
        new: server,
    });
    assert!(LogMessage::of(&silent, 1000).is_none());
}

#[test]
fn heartbeat_messages_name_the_connection() {
    // K-4, K-5, J-6
    check(
        started(1),
        TOPOLOGY_DEBUG,
        "Server heartbeat started",
        &[
            ("topologyId", ID),
            ("serverHost", "host1"),
            ("serverPort", "27017"),
            ("driverConnectionId", "1"),
            ("awaited", "false"),
        ],
        &format!(
            "Heartbeat started for host1:27017 on connection with driver-generated ID 1 in \
             topology with ID {ID}. Awaited: false"
        ),
    );
    let connection = ConnectionId {
        driver: 3,
        server: Some(77),
    };
    let awaited = Heartbeat::new(ServerId::from_u64(1), address("a"), connection, true);
    check(
        EventKind::ServerHeartbeatStarted(awaited),
        TOPOLOGY_DEBUG,
        "Server heartbeat started",
        &[
            ("topologyId", ID),
            ("serverHost", "a"),
            ("serverPort", "27017"),
            ("driverConnectionId", "3"),
            ("serverConnectionId", "77"),
            ("awaited", "true"),
        ],
        &format!(
            "Heartbeat started for a:27017 on connection with driver-generated ID 3 and \
             server-generated ID 77 in topology with ID {ID}. Awaited: true"
        ),
    );
    check(
        failed(1),
        TOPOLOGY_DEBUG,
        "Server heartbeat failed",
        &[
            ("topologyId", ID),
            ("serverHost", "host1"),
            ("serverPort", "27017"),
            ("driverConnectionId", "1"),
            ("awaited", "false"),
            ("durationMS", "3"),
            ("failure", "network error at connect: refused"),
        ],
        &format!(
            "Heartbeat failed in 3 ms for host1:27017 on connection with driver-generated ID 1 in \
             topology with ID {ID}. Awaited: false. Failure: network error at connect: refused"
        ),
    );
}

#[test]
fn replies_are_logged_as_extended_json_up_to_the_limit() {
    // K-2, K-5
    check(
        succeeded(1, &doc! { "ok": 1.0, "id": REPLY_ID }),
        TOPOLOGY_DEBUG,
        "Server heartbeat succeeded",
        &[
            ("topologyId", ID),
            ("serverHost", "host1"),
            ("serverPort", "27017"),
            ("driverConnectionId", "1"),
            ("awaited", "false"),
            ("durationMS", "1.5"),
            (
                "reply",
                r#"{"ok":1.0,"id":{"$oid":"010101010101010101010101"}}"#,
            ),
        ],
        &format!(
            "Heartbeat succeeded in 1.5 ms for host1:27017 on connection with driver-generated ID \
             1 in topology with ID {ID}. Awaited: false. Reply: \
             {{\"ok\":1.0,\"id\":{{\"$oid\":\"010101010101010101010101\"}}}}"
        ),
    );
    let long = event(succeeded(1, &doc! { "text": "x".repeat(5000) }));
    for limit in [5, DEFAULT_MAX_DOCUMENT_LENGTH] {
        let message = LogMessage::of(&long, limit).unwrap();
        let reply = message.fields().reply.unwrap().to_string();
        assert_eq!(reply.len(), limit + "...".len());
        assert!(reply.ends_with("..."));
    }
}

#[test]
fn ignored_members_are_logged_as_a_warning() {
    check(
        EventKind::MembersIgnored {
            ignored: 3,
            limit: 10,
        },
        ("topology", Severity::Warn),
        "Members ignored",
        &[("topologyId", ID), ("ignored", "3"), ("limit", "10")],
        &format!("Ignored 3 members beyond the limit of 10 servers in topology with ID {ID}"),
    );
    assert_eq!(TOPOLOGY.to_string(), ID);
}

#[test]
fn an_unusable_server_is_logged_as_a_warning_with_the_remedy() {
    let error = Error::new(ErrorKind::Network, Stage::Dns, "not found");
    let obstacle = Obstacle::NamesDiffer {
        connected: address("localhost"),
        me: address("mongo-0"),
        error,
    };
    let text = format!(
        "the set calls itself mongo-0:27017, you connected to localhost:27017: mongo-0:27017 cannot \
         be resolved from here; {}",
        Obstacle::NAMES
    );
    check(
        EventKind::ServerUnusable {
            server: ServerId::from_u64(1),
            address: address("mongo-0"),
            obstacle,
        },
        ("topology", Severity::Warn),
        "Server unusable",
        &[
            ("topologyId", ID),
            ("serverHost", "mongo-0"),
            ("serverPort", "27017"),
            ("reason", &text),
        ],
        &format!("Cannot use server mongo-0:27017 in topology with ID {ID}: {text}"),
    );
}

fn config(variables: &[(&str, &str)]) -> LogConfig {
    LogConfig::from_env(|name| {
        let (_, value) = variables.iter().find(|(own, _)| *own == name)?;
        Some((*value).to_owned())
    })
}

#[test]
fn the_environment_configures_each_component_and_nothing_is_logged_by_default() {
    // K-3
    assert_eq!(config(&[]), LogConfig::default());
    assert!(config(&[]).interest().is_empty());

    let mixed = config(&[
        ("MONGODB_LOG_ALL", "info"),
        ("MONGODB_LOG_TOPOLOGY", "DEBUG"),
        ("MONGODB_LOG_CONNECTION", "off"),
        ("MONGODB_LOG_COMMAND", "loud"),
    ]);
    let severities = [
        (Component::Topology, Severity::Debug),
        (Component::ServerSelection, Severity::Info),
        (Component::Connection, Severity::Off),
        // An invalid level counts as unset.
        (Component::Command, Severity::Info),
    ];
    for (component, severity) in severities {
        assert_eq!(mixed.severity(component), severity, "{component:?}");
        assert!(!mixed.enables(component, Severity::Off), "{component:?}");
    }
    assert!(mixed.enables(Component::Topology, Severity::Debug));
    assert!(!mixed.enables(Component::Topology, Severity::Trace));
    assert!(mixed.enables(Component::ServerSelection, Severity::Warn));
    assert!(!mixed.enables(Component::Connection, Severity::Emergency));
    let expected = Interest::SDAM
        .without(EventName::ServerDescriptionChanged.into())
        .union(EventName::ServerSelectionWaiting.into());
    assert_eq!(mixed.interest(), expected);
}

#[test]
fn a_level_that_logs_the_start_of_heartbeats_logs_their_end() {
    // K-9
    let mut logged = 0;
    for severity in ["off", "error", "warn", "info", "debug", "trace"] {
        let interest = config(&[("MONGODB_LOG_TOPOLOGY", severity)]).interest();
        let heartbeats = interest.intersection(Interest::HEARTBEATS);
        assert!(
            heartbeats.is_empty() || heartbeats == Interest::HEARTBEATS,
            "{severity}"
        );
        logged += usize::from(!heartbeats.is_empty());
    }
    assert_eq!(logged, 2, "debug and trace");
    // One message for each event in the interest.
    let reply = doc! { "ok": 1.0 };
    for kind in [started(1), succeeded(1, &reply), failed(1)] {
        assert!(LogMessage::of(&event(kind), DEFAULT_MAX_DOCUMENT_LENGTH).is_some());
    }
}

#[test]
fn every_level_of_the_specification_is_parsed() {
    // K-3
    let names = [
        "off",
        "emergency",
        "alert",
        "critical",
        "error",
        "warn",
        "notice",
        "info",
        "debug",
        "trace",
    ];
    let levels: Vec<Severity> = names.iter().map(|name| name.parse().unwrap()).collect();
    assert!(levels.is_sorted());
    assert_eq!((levels[0], levels[9]), (Severity::Off, Severity::Trace));
    assert!("verbose".parse::<Severity>().is_err());
    assert!(
        config(&[("MONGODB_LOG_ALL", "nonsense")])
            .interest()
            .is_empty()
    );
}

#[test]
fn the_environment_sets_output_and_document_length() {
    // K-3
    let check = |path: &str, output: LogOutput| {
        assert_eq!(config(&[("MONGODB_LOG_PATH", path)]).output, output);
    };
    check("stdout", LogOutput::Stdout);
    check("STDERR", LogOutput::Stderr);
    check("", LogOutput::Stderr);
    check("/var/log/m.log", LogOutput::File("/var/log/m.log".into()));
    for (length, expected) in [("12", 12), ("-1", 1000), ("many", 1000), ("0", 0)] {
        let config = config(&[("MONGODB_LOG_MAX_DOCUMENT_LENGTH", length)]);
        assert_eq!(config.max_document_length, expected, "{length}");
    }
}
