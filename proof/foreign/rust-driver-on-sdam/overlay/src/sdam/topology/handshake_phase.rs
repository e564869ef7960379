//! The stage that a connection had reached when an error occurred.

use crate::{
    bson::oid::ObjectId,
    cmap::{
        ConnectionPool, PoolGeneration,
        conn::{ConnectionGeneration, pooled::PooledConnection},
    },
};

/// The stage that a connection had reached when an error occurred.
#[derive(Debug, Clone)]
pub(crate) enum HandshakePhase {
    /// The reply to hello had not been read.
    PreHello { generation: PoolGeneration },

    /// The reply to hello had been read, but the connection was not authenticated.
    PostHello { generation: ConnectionGeneration },

    /// The connection was established.
    AfterCompletion { generation: ConnectionGeneration, max_wire_version: i32 },
}

impl HandshakePhase {
    pub(crate) fn after_completion(connection: &PooledConnection) -> Self {
        let description = connection.stream_description();
        let version = description.ok().and_then(|description| description.max_wire_version);
        Self::AfterCompletion {
            generation: connection.generation,
            max_wire_version: version.unwrap_or(0),
        }
    }

    /// Returns the service behind a load balancer, which is known from the reply to hello.
    pub(crate) fn service_id(&self) -> Option<ObjectId> {
        match self {
            Self::PreHello { .. } => None,
            Self::PostHello { generation } | Self::AfterCompletion { generation, .. } => {
                generation.service_id()
            }
        }
    }

    /// Returns the generation that the pool assigned; `None` behind a load balancer.
    pub(super) fn generation(&self) -> Option<u32> {
        match self {
            Self::PreHello { generation: PoolGeneration::Normal(generation) }
            | Self::PostHello { generation: ConnectionGeneration::Normal(generation) }
            | Self::AfterCompletion {
                generation: ConnectionGeneration::Normal(generation), ..
            } => Some(*generation),
            _ => None,
        }
    }

    /// Returns whether the connection is older than the last clear of its service.
    pub(super) fn is_stale(&self, pool: &ConnectionPool) -> bool {
        match self {
            Self::PreHello { .. } => false,
            Self::PostHello { generation } | Self::AfterCompletion { generation, .. } => {
                generation.is_stale(&pool.generation())
            }
        }
    }
}
