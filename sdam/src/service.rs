//! Pooled connections to the services behind a load balancer.

use sdam_core::ids::{Generation, ObjectId, ServerId};

/// A pooled connection to a service behind a load balancer, as the topology counts it.
///
/// A pool keeps it with the connection and puts [`generation`](Self::generation) and
/// [`service_id`](Self::service_id) into the connection's error reports. When the connection is
/// closed, the pool passes it by value to
/// [`handle_service_connection_closed`](crate::topology::Topology::handle_service_connection_closed),
/// so none can be reported twice.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the topology remembers the service until the connection is reported as closed"]
pub struct ServiceConnection {
    pub(crate) server: ServerId,
    pub(crate) service: ObjectId,
    pub(crate) generation: Generation,
}

impl ServiceConnection {
    /// Returns the server id of the load balancer.
    pub fn server(&self) -> ServerId {
        self.server
    }

    /// Returns the service that the connection leads to.
    pub fn service_id(&self) -> ObjectId {
        self.service
    }

    /// Returns the generation of the connection. It is stale once its service's pool has been
    /// cleared with a greater one.
    pub fn generation(&self) -> Generation {
        self.generation
    }
}
