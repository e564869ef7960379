use std::fmt::{self, Display};

use super::{EventName, LogFields, LogMessage};

impl Display for LogMessage<'_> {
    /// Writes the specification's unstructured sentence, without the parts about absent values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = &self.fields;
        let topology = Shown(fields.topology_id.as_ref());
        let server = Server(fields);
        match self.name {
            EventName::TopologyOpening => {
                write!(f, "Starting monitoring for topology with ID {topology}")
            }
            EventName::TopologyClosed => {
                write!(f, "Stopped monitoring for topology with ID {topology}")
            }
            EventName::ServerOpening => write!(
                f,
                "Starting monitoring for server {server} in topology with ID {topology}"
            ),
            EventName::ServerClosed => write!(
                f,
                "Stopped monitoring for server {server} in topology with ID {topology}. Reason: it \
                 {}",
                Shown(fields.reason)
            ),
            EventName::TopologyDescriptionChanged => write!(
                f,
                "Description changed for topology with ID {topology}. Previous description: {}. \
                 New description: {}",
                Shown(fields.previous_description),
                Shown(fields.new_description)
            ),
            EventName::ConfigWarning => write!(
                f,
                "Configuration of topology with ID {topology}: {}",
                Shown(fields.warning)
            ),
            EventName::MembersIgnored => write!(
                f,
                "Ignored {} members beyond the limit of {} servers in topology with ID {topology}",
                Shown(fields.ignored.as_ref()),
                Shown(fields.limit.as_ref())
            ),
            EventName::TopologyEmptied => write!(
                f,
                "The last server has left topology with ID {topology}, so no server will be found \
                 any more; check the hosts and the replica set name that are configured"
            ),
            EventName::EventsDropped => write!(
                f,
                "Left out {} events so far, which come faster than they are taken, in topology with \
                 ID {topology}",
                Shown(fields.dropped.as_ref())
            ),
            EventName::PoolReady => write!(f, "Connection pool ready for {server}"),
            EventName::PoolCleared => {
                write!(f, "Connection pool for {server} cleared")?;
                match fields.service_id {
                    Some(id) => write!(f, " for serviceId {id}"),
                    None => Ok(()),
                }
            }
            EventName::ServerHeartbeatStarted
            | EventName::ServerHeartbeatSucceeded
            | EventName::ServerHeartbeatFailed => self.heartbeat(f),
            _ => self.selection(f),
        }
    }
}

impl LogMessage<'_> {
    fn heartbeat(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = &self.fields;
        match self.name {
            EventName::ServerHeartbeatStarted => f.write_str("Heartbeat started")?,
            EventName::ServerHeartbeatSucceeded => f.write_str("Heartbeat succeeded")?,
            _ => f.write_str("Heartbeat failed")?,
        }
        if let Some(duration) = fields.duration_ms {
            write!(f, " in {duration} ms")?;
        }
        write!(
            f,
            " for {} on connection with driver-generated ID {}",
            Server(fields),
            Shown(fields.driver_connection_id.as_ref())
        )?;
        if let Some(id) = fields.server_connection_id {
            write!(f, " and server-generated ID {id}")?;
        }
        write!(
            f,
            " in topology with ID {}. Awaited: {}",
            Shown(fields.topology_id.as_ref()),
            Shown(fields.awaited.as_ref())
        )?;
        if let Some(reply) = fields.reply {
            write!(f, ". Reply: {reply}")?;
        }
        if let Some(failure) = fields.failure {
            write!(f, ". Failure: {failure}")?;
        }
        Ok(())
    }

    fn selection(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = &self.fields;
        let waits = self.name == EventName::ServerSelectionWaiting;
        f.write_str(match self.name {
            EventName::ServerSelectionStarted => "Server selection started",
            EventName::ServerSelectionSucceeded => "Server selection succeeded",
            EventName::ServerSelectionFailed => "Server selection failed",
            _ => "Waiting for server to become available",
        })?;
        if let Some(operation) = fields.operation {
            write!(f, " for operation {operation}")?;
        }
        if let Some(id) = fields.operation_id {
            write!(f, " with ID {id}")?;
        }
        f.write_str(". ")?;
        if let Some(time) = fields.remaining_time_ms {
            write!(f, "Remaining time: {time} ms. ")?;
        }
        if fields.server_host.is_some() {
            write!(f, "Selected server: {}. ", Server(fields))?;
        }
        if let Some(failure) = fields.failure {
            write!(f, "Failure: {failure}. ")?;
        }
        write!(
            f,
            "Selector: {}, topology description: {}",
            Shown(fields.selector.as_ref()),
            Shown(fields.topology_description)
        )?;
        // Only this sentence of the specification ends with a full stop.
        if waits { f.write_str(".") } else { Ok(()) }
    }
}

/// Displays host and port as in an address.
struct Server<'a>(&'a LogFields<'a>);

impl Display for Server<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.0.server_host.unwrap_or_default();
        match self.0.server_port {
            Some(port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Some(port) => write!(f, "{host}:{port}"),
            None => f.write_str(host),
        }
    }
}

/// Displays a value that the message always has.
struct Shown<'a, T>(Option<&'a T>);

impl<T: Display> Display for Shown<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |value| value.fmt(f))
    }
}
