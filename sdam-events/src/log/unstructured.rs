use std::fmt::{self, Display};

use super::{EventName, LogFields, LogMessage};
use crate::sink::Interest;

impl Display for LogMessage<'_> {
    /// Writes the specification's unstructured sentence, without the parts for absent values.
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
            EventName::ServerOpening => {
                write!(f, "Starting monitoring for server {server} in topology with ID {topology}")
            }
            EventName::ServerClosed => write!(
                f,
                "Stopped monitoring for server {server} in topology with ID {topology}. Reason: it \
                 {}",
                Shown(fields.reason.as_ref())
            ),
            EventName::TopologyDescriptionChanged => write!(
                f,
                "Description changed for topology with ID {topology}. Previous description: {}. \
                 New description: {}",
                Shown(fields.previous_description),
                Shown(fields.new_description)
            ),
            EventName::ConfigWarning => {
                write!(f, "Configuration of topology with ID {topology}: {}", Shown(fields.warning))
            }
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
            EventName::SrvHostsIgnored => write!(
                f,
                "Ignored hosts of SRV record {}, because they are not in the domain {}, in \
                 topology with ID {topology}: {}",
                Shown(fields.srv_name.as_ref()),
                Shown(fields.domain.as_ref()),
                Shown(fields.hosts.as_ref())
            ),
            EventName::SrvLookupFailed => write!(
                f,
                "SRV record {} gave no hosts, so topology with ID {topology} keeps its own and looks \
                 up again in {} ms: {}",
                Shown(fields.srv_name.as_ref()),
                Shown(fields.remaining_time_ms.as_ref()),
                Shown(fields.failure.as_ref())
            ),
            EventName::ServerUnusable => write!(
                f,
                "Cannot use server {server} in topology with ID {topology}: {}",
                Shown(fields.reason.as_ref())
            ),
            EventName::ServerSuspected | EventName::ServerSuspicionEnded => self.suspicion(f),
            EventName::EventsDropped => write!(
                f,
                "Left out {} events so far, which come faster than they are taken, in topology with \
                 ID {topology}",
                Shown(fields.dropped.as_ref())
            ),
            EventName::ServerHeartbeatStarted
            | EventName::ServerHeartbeatSucceeded
            | EventName::ServerHeartbeatFailed => self.heartbeat(f),
            EventName::CommandStarted | EventName::CommandSucceeded | EventName::CommandFailed => {
                self.command(f)
            }
            name if Interest::POOLS.contains(name) => self.connection(f),
            _ => self.selection(f),
        }
    }
}

impl LogMessage<'_> {
    fn suspicion(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = &self.fields;
        let (server, topology) = (Server(fields), Shown(fields.topology_id.as_ref()));
        let duration = Shown(fields.duration_ms.as_ref());
        match &fields.reason {
            None => write!(
                f,
                "Server {server} has not answered for {duration} ms while others do, in topology with \
                 ID {topology}"
            ),
            Some(reason) => write!(
                f,
                "Server {server} is no longer suspected after {duration} ms, in topology with ID \
                 {topology}: {reason}"
            ),
        }
    }

    fn heartbeat(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = &self.fields;
        match self.name {
            EventName::ServerHeartbeatStarted => f.write_str("Heartbeat started")?,
            EventName::ServerHeartbeatSucceeded => f.write_str("Heartbeat succeeded")?,
            _ => f.write_str("Heartbeat failed")?,
        }
        part(f, " in ", fields.duration_ms, " ms")?;
        write!(
            f,
            " for {} on connection with driver-generated ID {}",
            Server(fields),
            Shown(fields.driver_connection_id.as_ref())
        )?;
        let id = fields.server_connection_id;
        part(f, " and server-generated ID ", id, "")?;
        write!(
            f,
            " in topology with ID {}. Awaited: {}",
            Shown(fields.topology_id.as_ref()),
            Shown(fields.awaited.as_ref())
        )?;
        part(f, ". Reply: ", fields.reply, "")?;
        part(f, ". Failure: ", fields.failure, "")
    }

    fn connection(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = &self.fields;
        let server = Server(fields);
        match self.name {
            EventName::PoolCreated => {
                write!(f, "Connection pool created for {server}")?;
                self.pool_options(f)
            }
            EventName::PoolReady => write!(f, "Connection pool ready for {server}"),
            EventName::PoolCleared => {
                write!(f, "Connection pool for {server} cleared")?;
                part(f, " for serviceId ", fields.service_id, "")
            }
            EventName::PoolClosed => write!(f, "Connection pool closed for {server}"),
            EventName::ConnectionCheckOutStarted => {
                write!(f, "Checkout started for connection to {server}")
            }
            EventName::ConnectionCheckOutFailed => {
                write!(f, "Checkout failed for connection to {server}")?;
                part(f, ". Reason: ", fields.reason, "")?;
                part(f, ". Error: ", fields.error, "")?;
                part(f, ". Duration: ", fields.duration_ms, " ms")
            }
            _ => {
                write!(f, "{}: address={server}", self.text)?;
                part(f, ", driver-generated ID=", fields.driver_connection_id, "")?;
                let duration = match self.name {
                    EventName::ConnectionReady => ", established in=",
                    _ => ", duration=",
                };
                part(f, duration, fields.duration_ms, " ms")?;
                part(f, ". Reason: ", fields.reason, "")?;
                part(f, ". Error: ", fields.error, "")
            }
        }
    }

    fn pool_options(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = &self.fields;
        let mut separator = " using options ";
        let options: [(&str, Option<i64>); 5] = [
            ("maxIdleTimeMS", fields.max_idle_time_ms),
            ("minPoolSize", fields.min_pool_size.map(Into::into)),
            ("maxPoolSize", fields.max_pool_size.map(Into::into)),
            ("maxConnecting", fields.max_connecting.map(Into::into)),
            ("waitQueueTimeoutMS", fields.wait_queue_timeout_ms),
        ];
        for (name, value) in options {
            if let Some(value) = value {
                write!(f, "{separator}{name}={value}")?;
                separator = ", ";
            }
        }
        Ok(())
    }

    fn command(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = &self.fields;
        write!(
            f,
            "Command \"{}\" {} on database \"{}\"",
            Shown(fields.command_name.as_ref()),
            match self.name {
                EventName::CommandStarted => "started",
                EventName::CommandSucceeded => "succeeded",
                _ => "failed",
            },
            Shown(fields.database_name.as_ref())
        )?;
        part(f, " in ", fields.duration_ms, " ms")?;
        let id = fields.driver_connection_id;
        part(f, " using a connection with driver-generated ID ", id, "")?;
        let id = fields.server_connection_id;
        part(f, " and server-generated ID ", id, "")?;
        write!(f, " to {}", Server(fields))?;
        part(f, " with service ID ", fields.service_id, "")?;
        part(f, ". The requestID is ", fields.request_id, "")?;
        part(f, " and the operation ID is ", fields.operation_id, "")?;
        part(f, ". Command: ", fields.command, "")?;
        part(f, ". Command reply: ", fields.reply, "")?;
        part(f, ". Error: ", fields.failure, "")
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
        part(f, " for operation ", fields.operation, "")?;
        part(f, " with ID ", fields.operation_id, "")?;
        f.write_str(". ")?;
        part(f, "Remaining time: ", fields.remaining_time_ms, " ms. ")?;
        let server = fields.server_host.map(|_| Server(fields));
        part(f, "Selected server: ", server, ". ")?;
        part(f, "Failure: ", fields.failure, ". ")?;
        write!(
            f,
            "Selector: {}, topology description: {}",
            Shown(fields.selector.as_ref()),
            Shown(fields.topology_description)
        )?;
        // The specification ends only this sentence with a full stop.
        if waits { f.write_str(".") } else { Ok(()) }
    }
}

/// Writes a value between two texts, or nothing if it is absent.
fn part(
    f: &mut fmt::Formatter<'_>,
    before: &str,
    value: Option<impl Display>,
    after: &str,
) -> fmt::Result {
    match value {
        Some(value) => write!(f, "{before}{value}{after}"),
        None => Ok(()),
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

/// Displays a value that the message always contains.
struct Shown<'a, T>(Option<&'a T>);

impl<T: Display> Display for Shown<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |value| value.fmt(f))
    }
}
