use std::time::Duration;

use sdam_core::{
    address::ServerAddress,
    app_error::{AppError, Cause},
    error::ServerError,
    event::{Event, EventKind, Heartbeat, Selection},
    ids::{ServerId, TopologyVersion},
    machine::RecordedInput,
    server::{Rtt, ServerDescription},
    topology::TopologyDescription,
};

use crate::text::Object;

/// Returns the line that records `event`, without the line end.
pub fn line(event: &Event) -> String {
    let mut out = String::new();
    Object::write(&mut out, |line| {
        line.plain("seq", Some(event.seq));
        line.plain("at", Some(event.at.as_nanos()));
        if let EventKind::Input(input) = &event.kind {
            write_input(line, input);
        } else {
            line.text("event", event.kind.name().as_str());
            if event.kind == EventKind::TopologyOpening {
                line.show("topology", Some(event.topology));
            }
            write_event(line, &event.kind);
        }
    });
    out
}

fn write_event(line: &mut Object<'_>, kind: &EventKind) {
    match kind {
        EventKind::TopologyDescriptionChanged { new, .. } => {
            line.object("new", |object| write_topology(object, new));
        }
        EventKind::ServerOpening { server, address }
        | EventKind::ServerClosed {
            server, address, ..
        }
        | EventKind::PoolReady { server, address } => write_server(line, *server, address),
        EventKind::ServerDescriptionChanged { new, .. } => {
            write_server(line, new.id, &new.address);
            line.object("new", |object| write_description(object, new));
        }
        EventKind::ConfigWarning(warning) => {
            line.text("option", warning.option());
            line.text("value", warning.value());
            line.text("reason", warning.reason());
            line.text("consequence", warning.consequence());
        }
        EventKind::MembersIgnored { ignored, limit } => {
            line.plain("ignored", Some(ignored));
            line.plain("limit", Some(limit));
        }
        EventKind::ServerHeartbeatStarted(heartbeat) => write_heartbeat(line, heartbeat),
        EventKind::ServerHeartbeatSucceeded {
            heartbeat,
            duration,
            reply,
        } => {
            write_heartbeat(line, heartbeat);
            write_duration(line, "duration", *duration);
            line.base64("reply", reply);
        }
        EventKind::ServerHeartbeatFailed {
            heartbeat,
            duration,
            failure,
        } => {
            write_heartbeat(line, heartbeat);
            write_duration(line, "duration", *duration);
            line.object("error", |object| write_error(object, failure));
        }
        EventKind::PoolCleared {
            server,
            address,
            clear,
        } => {
            write_server(line, *server, address);
            line.plain("generation", Some(clear.generation));
            line.show("serviceId", clear.service_id);
            line.plain("interruptInUse", Some(clear.interrupt_in_use));
            line.object("error", |object| write_error(object, &clear.cause));
        }
        kind => write_selection_step(line, kind),
    }
}

fn write_selection_step(line: &mut Object<'_>, kind: &EventKind) {
    match kind {
        EventKind::ServerSelectionStarted { selection, .. } => write_selection(line, selection),
        EventKind::ServerSelectionWaiting {
            selection,
            remaining,
            ..
        } => {
            write_selection(line, selection);
            if let Some(remaining) = remaining {
                write_duration(line, "remaining", *remaining);
            }
        }
        EventKind::ServerSelectionSucceeded {
            selection,
            server,
            address,
            duration,
            ..
        } => {
            write_selection(line, selection);
            write_server(line, *server, address);
            write_duration(line, "duration", *duration);
        }
        EventKind::ServerSelectionFailed {
            selection,
            reason,
            failure,
            duration,
            ..
        } => {
            write_selection(line, selection);
            line.text("reason", reason.as_str());
            line.text("failure", failure);
            write_duration(line, "duration", *duration);
        }
        _ => {}
    }
}

fn write_input(line: &mut Object<'_>, input: &RecordedInput) {
    match input {
        RecordedInput::Open => line.text("input", "Open"),
        RecordedInput::Close => line.text("input", "Close"),
        RecordedInput::Checked { server, error, rtt } => {
            line.text("input", "Checked");
            line.plain("server", Some(server));
            if let Some(error) = error {
                line.object("error", |object| write_error(object, error));
            }
            if let Some(rtt) = rtt {
                line.object("rtt", |object| write_rtt(object, *rtt));
            }
        }
        RecordedInput::Handshake {
            server,
            generation,
            reply,
            rtt,
        } => {
            line.text("input", "Handshake");
            line.plain("server", Some(server));
            line.plain("generation", Some(generation));
            line.base64("reply", reply);
            if let Some(rtt) = rtt {
                line.object("rtt", |object| write_rtt(object, *rtt));
            }
        }
        RecordedInput::ServiceConnectionClosed {
            server,
            service,
            generation,
        } => {
            line.text("input", "ServiceConnectionClosed");
            line.plain("server", Some(server));
            line.show("serviceId", Some(service));
            line.plain("generation", Some(generation));
        }
        RecordedInput::AppError { server, error } => {
            line.text("input", "AppError");
            line.plain("server", Some(server));
            write_app_error(line, error);
        }
        RecordedInput::Hosts(hosts) => {
            line.text("input", "Hosts");
            line.texts("hosts", hosts.iter().map(ServerAddress::as_str));
        }
        RecordedInput::MonitorDied { server } => {
            line.text("input", "MonitorDied");
            line.plain("server", Some(server));
        }
        // Inputs of a later version do not exist in this version's format.
        _ => line.text("input", "Other"),
    }
}

fn write_app_error(line: &mut Object<'_>, error: &AppError<'_>) {
    line.plain("generation", Some(error.generation));
    line.show("serviceId", error.service_id);
    line.text("stage", error.stage.as_str());
    line.plain("maxWireVersion", error.max_wire_version);
    match &error.cause {
        Cause::Network(message) => line.text("network", message),
        Cause::Timeout(message) => line.text("timeout", message),
        Cause::Protocol(message) => line.text("protocol", message),
        Cause::Auth(message) => line.text("auth", message),
        Cause::Reply(reply) => line.base64("reply", reply),
    }
}

fn write_server(line: &mut Object<'_>, server: ServerId, address: &ServerAddress) {
    line.plain("server", Some(server));
    line.text("address", address.as_str());
}

fn write_heartbeat(line: &mut Object<'_>, heartbeat: &Heartbeat) {
    write_server(line, heartbeat.server, &heartbeat.address);
    line.plain("driverConnectionId", Some(heartbeat.connection.driver));
    line.plain("serverConnectionId", heartbeat.connection.server);
    line.plain("awaited", Some(heartbeat.awaited));
}

fn write_selection(line: &mut Object<'_>, selection: &Selection) {
    line.text("selector", &selection.selector);
    line.show("operation", selection.operation.as_deref());
    line.plain("operationId", selection.operation_id);
}

fn write_duration(object: &mut Object<'_>, key: &str, duration: Duration) {
    object.plain(key, Some(duration.as_nanos()));
}

fn write_rtt(object: &mut Object<'_>, rtt: Rtt) {
    write_duration(object, "average", rtt.average);
    write_duration(object, "minimum", rtt.minimum);
    write_duration(object, "p90", rtt.p90);
}

fn write_error(object: &mut Object<'_>, error: &ServerError) {
    object.text("kind", error.kind.as_str());
    object.text("stage", error.stage.as_str());
    object.plain("code", error.code);
    object.show("codeName", error.code_name.as_deref());
    if !error.labels.is_empty() {
        object.texts("labels", &error.labels);
    }
    object.text("message", &error.message);
    write_version(object, error.topology_version);
}

fn write_version(object: &mut Object<'_>, version: Option<TopologyVersion>) {
    if let Some(version) = version {
        object.object("topologyVersion", |object| {
            object.show("processId", Some(version.process_id));
            object.plain("counter", Some(version.counter));
        });
    }
}

fn write_topology(object: &mut Object<'_>, topology: &TopologyDescription) {
    object.text("type", topology.topology_type().as_str());
    object.show("setName", topology.set_name());
    object.show("maxElectionId", topology.max_election().election_id);
    object.plain("maxSetVersion", topology.max_election().set_version);
    let minutes = topology.logical_session_timeout_minutes();
    object.plain("logicalSessionTimeoutMinutes", minutes);
    object.show("compatibilityError", topology.compatibility_error());
    object.object("servers", |servers| {
        for server in topology.servers() {
            servers.text(server.address.as_str(), server.server_type.as_str());
        }
    });
}

fn write_description(object: &mut Object<'_>, server: &ServerDescription) {
    object.text("type", server.server_type.as_str());
    object.show("setName", server.set_name.as_deref());
    object.show("me", server.me.as_ref());
    object.show("primary", server.primary.as_ref());
    for (key, members) in [
        ("hosts", &server.hosts),
        ("passives", &server.passives),
        ("arbiters", &server.arbiters),
    ] {
        if !members.is_empty() {
            object.texts(key, members.iter().map(ServerAddress::as_str));
        }
    }
    if !server.tags.is_empty() {
        object.show("tags", Some(&server.tags));
    }
    object.show("electionId", server.election.election_id);
    object.plain("setVersion", server.election.set_version);
    object.plain("lastWriteDate", server.last_write_date);
    object.plain("minWireVersion", Some(server.wire_versions.min));
    object.plain("maxWireVersion", Some(server.wire_versions.max));
    let minutes = server.logical_session_timeout_minutes;
    object.plain("logicalSessionTimeoutMinutes", minutes);
    object.plain("iscryptd", server.is_cryptd);
    write_version(object, server.topology_version);
    if let Some(rtt) = server.rtt {
        object.object("rtt", |object| write_rtt(object, rtt));
    }
    if let Some(error) = &server.error {
        object.object("error", |object| write_error(object, error));
    }
}
