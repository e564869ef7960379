//! Conversions of the driver's errors to reports, and of server errors to the driver's errors.

use std::{io, sync::Arc};

use ::sdam::{ErrorReport, Generation, Stage, discovery::reply};

use super::{TopologyVersion, topology::HandshakePhase};
use crate::{
    bson::{RawDocumentBuf, rawdoc},
    bson_compat::cstr,
    error::{CommandError, Error, ErrorKind, SYSTEM_OVERLOADED_ERROR},
};

/// Returns the driver's error that caused `error`, or else a driver's error of the same kind.
pub(crate) fn to_driver(error: &::sdam::Error) -> Error {
    if let Some(own) = error.source_as::<Error>() {
        return own.clone();
    }
    let text = || format!("{error:#}");
    let io = |kind| ErrorKind::Io(Arc::new(io::Error::new(kind, text())));
    let kind = match error.kind() {
        ::sdam::ErrorKind::Command => ErrorKind::Command(CommandError {
            code: error.code().unwrap_or_default(),
            code_name: error.code_name().unwrap_or_default().to_string(),
            message: error.message().to_string(),
            topology_version: error.topology_version().map(|version| TopologyVersion {
                process_id: super::convert::driver_object_id(version.process_id),
                counter: version.counter,
            }),
            base_backoff: None,
        }),
        ::sdam::ErrorKind::Timeout => io(io::ErrorKind::TimedOut),
        ::sdam::ErrorKind::Network => {
            io(error.source_as::<io::Error>().map_or(io::ErrorKind::Other, io::Error::kind))
        }
        ::sdam::ErrorKind::SetName => return Error::invalid_argument(text()),
        ::sdam::ErrorKind::Protocol | ::sdam::ErrorKind::StalePrimary => {
            return Error::invalid_response(text());
        }
        _ => return Error::internal(text()),
    };
    let labels = error.labels().map(ToString::to_string);
    Error::new(kind, Some(labels))
}

/// Converts the error from a monitor's connection attempt. Without an overload label, the error did
/// not occur on the socket, so it gets an earlier stage.
pub(crate) fn of_connecting(error: Error) -> ::sdam::Error {
    let (stage, text) = (stage_before_hello(&error), "connecting");
    if error.is_network_timeout() {
        ::sdam::Error::timeout(stage, text)
    } else if error.is_network_error() || matches!(*error.kind, ErrorKind::DnsResolve { .. }) {
        ::sdam::Error::network(stage, text)
    } else {
        ::sdam::Error::protocol(Stage::Tls, text)
    }
    .with_source(error)
}

fn stage_before_hello(error: &Error) -> Stage {
    if error.contains_label(SYSTEM_OVERLOADED_ERROR) { Stage::Connect } else { Stage::Dns }
}

/// Returns the report for an error on a pooled connection; `None` if the error says nothing about
/// the server.
pub(crate) fn report(
    error: &Error,
    phase: &HandshakePhase,
    generation: Generation,
) -> Option<ErrorReport> {
    let stage = match phase {
        HandshakePhase::PreHello { .. } => stage_before_hello(error),
        HandshakePhase::PostHello { .. } => Stage::Auth,
        HandshakePhase::AfterCompletion { .. } => Stage::Operation,
    };
    let text = "a pooled connection failed";
    let failure = if let Some(reply) = own_reply(error) {
        let hello = matches!(phase, HandshakePhase::PreHello { .. });
        reply::error(&reply, if hello { Stage::Hello } else { stage })?
    } else if error.is_network_timeout() {
        ::sdam::Error::timeout(stage, text)
    } else if error.is_non_timeout_network_error() {
        ::sdam::Error::network(stage, text)
    } else if error.is_incompatible_server() || stage == Stage::Operation {
        return None;
    } else if matches!(*error.kind, ErrorKind::DnsResolve { .. }) {
        ::sdam::Error::network(stage, text)
    } else {
        ::sdam::Error::auth(text)
    };
    let report = ErrorReport::new(generation, failure.with_source(error.clone()));
    let report = match phase {
        HandshakePhase::AfterCompletion { max_wire_version, .. } => {
            report.with_max_wire_version(*max_wire_version)
        }
        _ => report,
    };
    Some(report.with_service(phase.service_id().map(super::convert::object_id)))
}

/// Returns the server's reply that contained this error, or an equivalent reply.
fn own_reply(error: &Error) -> Option<Vec<u8>> {
    let code = error.sdam_code()?;
    if let Some(response) = error.server_response() {
        return Some(response.as_bytes().to_vec());
    }
    let mut reply: RawDocumentBuf = rawdoc! { "ok": 0, "code": code };
    if let ErrorKind::Command(command) = &*error.kind {
        reply.append(cstr!("errmsg"), command.message.as_str());
        reply.append(cstr!("codeName"), command.code_name.as_str());
        if let Some(version) = command.topology_version {
            reply.append(cstr!("topologyVersion"), version);
        }
    }
    Some(reply.as_bytes().to_vec())
}
