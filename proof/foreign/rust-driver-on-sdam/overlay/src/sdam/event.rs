//! Conversion of the framework's events to the driver's.

use std::sync::Arc;

use ::sdam::{Clock, Event, EventKind, EventSink, Interest};
use derive_where::derive_where;

use super::{
    ServerInfo, TopologyDescription,
    convert::{self, Now},
    error,
};
#[cfg(feature = "tracing-unstable")]
use crate::trace::topology::TopologyTracingEventEmitter;
use crate::{
    bson::{Document, RawDocumentBuf, doc},
    client::options::ClientOptions,
    event::{EventHandler, sdam::*},
};

/// Passes events to the application's handler and to tracing.
#[derive_where(Debug)]
pub(crate) struct Events {
    handler: Option<EventHandler<SdamEvent>>,
    #[cfg(feature = "tracing-unstable")]
    #[derive_where(skip)]
    traces: TopologyTracingEventEmitter,
    clock: Arc<dyn Clock>,
    interest: Interest,
    #[derive_where(skip)]
    options: Arc<ClientOptions>,
}

impl Events {
    /// Creates the converter; `None` if no handler would receive the events.
    pub(crate) fn new(
        options: Arc<ClientOptions>,
        clock: Arc<dyn Clock>,
        #[cfg(feature = "tracing-unstable")] id: crate::bson::oid::ObjectId,
        monitoring: bool,
    ) -> Option<Self> {
        let handler = options.sdam_event_handler.clone();
        if handler.is_none() && !cfg!(feature = "tracing-unstable") {
            return None;
        }
        Some(Self {
            handler,
            #[cfg(feature = "tracing-unstable")]
            traces: TopologyTracingEventEmitter::new(options.tracing_max_document_length_bytes, id),
            clock,
            interest: if monitoring {
                Interest::DESCRIPTIONS.union(Interest::HEARTBEATS)
            } else {
                Interest::DESCRIPTIONS
            },
            options,
        })
    }

    fn convert(&self, event: &Event) -> Option<SdamEvent> {
        let topology_id = convert::driver_object_id(event.topology);
        let now = Now::of(&*self.clock);
        let server = |server: &::sdam::ServerDescription| {
            ServerInfo::new_owned(convert::driver_description(server, now))
        };
        let topology = |description: &Arc<::sdam::TopologyDescription>| {
            TopologyDescription::new(description, &self.options, None, &self.clock).into()
        };
        Some(match &event.kind {
            EventKind::TopologyOpening => {
                SdamEvent::TopologyOpening(TopologyOpeningEvent { topology_id })
            }
            EventKind::TopologyClosed => {
                SdamEvent::TopologyClosed(TopologyClosedEvent { topology_id })
            }
            EventKind::TopologyDescriptionChanged { previous, new } => {
                SdamEvent::TopologyDescriptionChanged(Box::new(TopologyDescriptionChangedEvent {
                    topology_id,
                    previous_description: topology(previous),
                    new_description: topology(new),
                }))
            }
            EventKind::ServerOpening { address, .. } => {
                SdamEvent::ServerOpening(ServerOpeningEvent {
                    address: convert::driver_address(address),
                    topology_id,
                })
            }
            EventKind::ServerClosed { address, .. } => SdamEvent::ServerClosed(ServerClosedEvent {
                address: convert::driver_address(address),
                topology_id,
            }),
            EventKind::ServerDescriptionChanged { previous, new } => {
                SdamEvent::ServerDescriptionChanged(Box::new(ServerDescriptionChangedEvent {
                    address: convert::driver_address(&new.address),
                    topology_id,
                    previous_description: server(previous),
                    new_description: server(new),
                }))
            }
            EventKind::ServerHeartbeatStarted(heartbeat) => {
                SdamEvent::ServerHeartbeatStarted(ServerHeartbeatStartedEvent {
                    server_address: convert::driver_address(&heartbeat.address),
                    awaited: heartbeat.awaited,
                    driver_connection_id: heartbeat.connection.driver as u32,
                    server_connection_id: heartbeat.connection.server,
                })
            }
            EventKind::ServerHeartbeatSucceeded { heartbeat, duration, reply } => {
                SdamEvent::ServerHeartbeatSucceeded(ServerHeartbeatSucceededEvent {
                    duration: *duration,
                    reply: document(reply),
                    server_address: convert::driver_address(&heartbeat.address),
                    awaited: heartbeat.awaited,
                    driver_connection_id: heartbeat.connection.driver as u32,
                    server_connection_id: heartbeat.connection.server,
                })
            }
            EventKind::ServerHeartbeatFailed { heartbeat, duration, failure } => {
                SdamEvent::ServerHeartbeatFailed(ServerHeartbeatFailedEvent {
                    duration: *duration,
                    failure: error::to_driver(failure),
                    server_address: convert::driver_address(&heartbeat.address),
                    awaited: heartbeat.awaited,
                    driver_connection_id: heartbeat.connection.driver as u32,
                    server_connection_id: heartbeat.connection.server,
                })
            }
            _ => return None,
        })
    }
}

impl EventSink for Events {
    fn emit(&self, event: &Event) {
        let Some(event) = self.convert(event) else {
            return;
        };
        #[cfg(feature = "tracing-unstable")]
        self.traces.handle(event.clone());
        if let Some(handler) = &self.handler {
            handler.handle(event);
        }
    }

    fn interest(&self) -> Interest {
        self.interest
    }
}

fn document(reply: &[u8]) -> Document {
    let raw = RawDocumentBuf::from_bytes(reply.to_vec());
    let reply = raw.and_then(|raw| Document::try_from(raw.as_ref()));
    reply.unwrap_or_else(|error| doc! { "deserialization error": error.to_string() })
}
