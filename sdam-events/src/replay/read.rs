use std::{sync::Arc, time::Duration};

use sdam_core::{
    address::ServerAddress,
    app_error::{AppError, Cause},
    error::{ErrorKind, ServerError, Stage},
    event::EventName,
    ids::{Generation, ObjectId, ServerId, TopologyVersion},
    machine::RecordedInput,
    options::Options,
    server::{Rtt, WireVersions},
    time::Instant,
    topology::TopologyType,
};
use serde_json::{Map, Value};

use crate::{record::VERSION, text::read_base64};

/// The header line.
pub(super) struct Header {
    pub(super) options: Options,
}

/// Any other line.
pub(super) struct Record {
    pub(super) seq: u64,
    pub(super) at: Instant,
    pub(super) entry: Entry,
}

pub(super) enum Entry {
    Input(RecordedInput),
    /// A successful heartbeat.
    Reply {
        server: ServerId,
        reply: Vec<u8>,
    },
    /// Any other event; the id comes with the first one.
    Event {
        name: EventName,
        topology: Option<ObjectId>,
    },
}

impl Header {
    pub(super) fn read(text: &str) -> Result<Self, Box<str>> {
        let value = parse(text)?;
        let header = Fields(&value);
        if header.text("recording")? != "sdam" {
            return Err("no recording of this kind".into());
        }
        let version: u32 = header.number("version")?;
        if version != VERSION {
            return Err(format!("version {version}, and only {VERSION} is known").into());
        }
        let object = header.object("options")?;
        let mut options = Options::new(object.addresses("seeds")?.into());
        options.direct_connection = object.find("directConnection").and_then(Value::as_bool);
        options.load_balanced = object.boolean("loadBalanced")?;
        options.replica_set = object.optional_text("replicaSet")?.map(Arc::from);
        options.initial_topology_type = object
            .optional_text("initialTopologyType")?
            .map(topology_type)
            .transpose()?;
        options.wire_versions = WireVersions {
            min: object.number("minWireVersion")?,
            max: object.number("maxWireVersion")?,
        };
        options.driver_name = object.text("driverName")?.into();
        options.max_servers = object.number("maxServers")?;
        options.handshake_errors_mark_unknown = object.boolean("handshakeErrorsMarkUnknown")?;
        Ok(Self { options })
    }
}

impl Record {
    pub(super) fn read(text: &str) -> Result<Self, Box<str>> {
        let value = parse(text)?;
        let line = Fields(&value);
        let entry = match line.optional_text("input")? {
            Some(name) => Entry::Input(input(name, &line)?),
            None => event(line.text("event")?, &line)?,
        };
        Ok(Self {
            seq: line.number("seq")?,
            at: Instant::from_nanos(line.number("at")?),
            entry,
        })
    }
}

fn event(name: &str, line: &Fields<'_>) -> Result<Entry, Box<str>> {
    let name = EventName::ALL
        .iter()
        .copied()
        .find(|own| own.as_str() == name)
        .ok_or_else(|| format!("no event is called {name}"))?;
    if name == EventName::ServerHeartbeatSucceeded {
        return Ok(Entry::Reply {
            server: line.server()?,
            reply: line.bytes("reply")?,
        });
    }
    Ok(Entry::Event {
        name,
        topology: line.optional_id("topology")?,
    })
}

fn input(name: &str, line: &Fields<'_>) -> Result<RecordedInput, Box<str>> {
    Ok(match name {
        "Open" => RecordedInput::Open,
        "Close" => RecordedInput::Close,
        "Checked" => RecordedInput::Checked {
            server: line.server()?,
            error: match line.optional_object("error")? {
                Some(error) => Some(Arc::new(server_error(&error)?)),
                None => None,
            },
            rtt: rtt(line)?,
        },
        "Handshake" => RecordedInput::Handshake {
            server: line.server()?,
            generation: Generation::from_u64(line.number("generation")?),
            reply: line.bytes("reply")?.into(),
            rtt: rtt(line)?,
        },
        "ServiceConnectionClosed" => RecordedInput::ServiceConnectionClosed {
            server: line.server()?,
            service: line
                .optional_id("serviceId")?
                .ok_or("`serviceId` is missing")?,
            generation: Generation::from_u64(line.number("generation")?),
        },
        "AppError" => RecordedInput::AppError {
            server: line.server()?,
            error: app_error(line)?,
        },
        "Hosts" => RecordedInput::Hosts(line.addresses("hosts")?),
        "MonitorDied" => RecordedInput::MonitorDied {
            server: line.server()?,
        },
        other => return Err(format!("no input is called {other}").into()),
    })
}

fn rtt(line: &Fields<'_>) -> Result<Option<Rtt>, Box<str>> {
    let Some(rtt) = line.optional_object("rtt")? else {
        return Ok(None);
    };
    Ok(Some(Rtt {
        average: Duration::from_nanos(rtt.number("average")?),
        minimum: Duration::from_nanos(rtt.number("minimum")?),
        p90: Duration::from_nanos(rtt.number("p90")?),
    }))
}

fn app_error(line: &Fields<'_>) -> Result<AppError<'static>, Box<str>> {
    let text = |key| Ok::<_, Box<str>>(line.optional_text(key)?.map(|text| text.to_owned().into()));
    let cause = if let Some(message) = text("network")? {
        Cause::Network(message)
    } else if let Some(message) = text("timeout")? {
        Cause::Timeout(message)
    } else if let Some(message) = text("protocol")? {
        Cause::Protocol(message)
    } else if let Some(message) = text("auth")? {
        Cause::Auth(message)
    } else {
        Cause::Reply(line.bytes("reply")?.into())
    };
    let generation = Generation::from_u64(line.number("generation")?);
    let mut error =
        AppError::new(generation, stage(line)?, cause).with_service(line.optional_id("serviceId")?);
    if line.find("maxWireVersion").is_some() {
        error = error.with_max_wire_version(line.number("maxWireVersion")?);
    }
    Ok(error)
}

fn stage(object: &Fields<'_>) -> Result<Stage, Box<str>> {
    Ok(Stage::parse(object.text("stage")?).ok_or("no such stage")?)
}

fn server_error(object: &Fields<'_>) -> Result<ServerError, Box<str>> {
    let kind = ErrorKind::parse(object.text("kind")?).ok_or("no such kind of error")?;
    let mut error = ServerError::new(kind, stage(object)?, object.text("message")?);
    error.code = match object.find("code") {
        Some(_) => Some(object.number("code")?),
        None => None,
    };
    error.code_name = object.optional_text("codeName")?.map(Into::into);
    if object.find("labels").is_some() {
        error.labels = object.texts("labels")?;
    }
    if let Some(version) = object.optional_object("topologyVersion")? {
        error.topology_version = Some(TopologyVersion {
            process_id: version
                .optional_id("processId")?
                .ok_or("`processId` is missing")?,
            counter: version.number("counter")?,
        });
    }
    Ok(error)
}

fn topology_type(name: &str) -> Result<TopologyType, Box<str>> {
    [
        TopologyType::Unknown,
        TopologyType::Single,
        TopologyType::ReplicaSetNoPrimary,
        TopologyType::ReplicaSetWithPrimary,
        TopologyType::Sharded,
        TopologyType::LoadBalanced,
    ]
    .into_iter()
    .find(|own| own.as_str() == name)
    .ok_or_else(|| format!("no topology type is called {name}").into())
}

fn parse(text: &str) -> Result<Map<String, Value>, Box<str>> {
    serde_json::from_str(text).map_err(|error| format!("no JSON object: {error}").into())
}

/// The fields of an object; errors name the field.
struct Fields<'v>(&'v Map<String, Value>);

impl<'v> Fields<'v> {
    fn find(&self, key: &str) -> Option<&'v Value> {
        self.0.get(key)
    }

    fn optional_text(&self, key: &str) -> Result<Option<&'v str>, Box<str>> {
        match self.find(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(format!("`{key}` is no text").into()),
        }
    }

    fn text(&self, key: &str) -> Result<&'v str, Box<str>> {
        self.optional_text(key)?
            .ok_or_else(|| format!("`{key}` is missing").into())
    }

    /// Returns an integer of any type.
    fn number<T: TryFrom<i128>>(&self, key: &str) -> Result<T, Box<str>> {
        let value = self.find(key).and_then(|value| {
            let unsigned = value.as_u64().map(i128::from);
            unsigned.or_else(|| value.as_i64().map(i128::from))
        });
        value
            .and_then(|number| T::try_from(number).ok())
            .ok_or_else(|| format!("`{key}` is missing or no integer of the right size").into())
    }

    fn boolean(&self, key: &str) -> Result<bool, Box<str>> {
        self.find(key)
            .and_then(Value::as_bool)
            .ok_or_else(|| format!("`{key}` is missing or not true or false").into())
    }

    fn server(&self) -> Result<ServerId, Box<str>> {
        self.number("server").map(ServerId::from_u64)
    }

    fn optional_id(&self, key: &str) -> Result<Option<ObjectId>, Box<str>> {
        self.optional_text(key)?
            .map(|text| {
                ObjectId::parse_hex(text).ok_or_else(|| format!("`{key}` is no ObjectId").into())
            })
            .transpose()
    }

    fn bytes(&self, key: &str) -> Result<Vec<u8>, Box<str>> {
        read_base64(self.text(key)?).ok_or_else(|| format!("`{key}` is no base64").into())
    }

    fn optional_object(&self, key: &str) -> Result<Option<Fields<'v>>, Box<str>> {
        match self.find(key) {
            None => Ok(None),
            Some(Value::Object(object)) => Ok(Some(Fields(object))),
            Some(_) => Err(format!("`{key}` is no object").into()),
        }
    }

    fn object(&self, key: &str) -> Result<Fields<'v>, Box<str>> {
        self.optional_object(key)?
            .ok_or_else(|| format!("`{key}` is missing").into())
    }

    fn texts(&self, key: &str) -> Result<Box<[Box<str>]>, Box<str>> {
        let wrong = || format!("`{key}` is no list of texts");
        let values = self.find(key).and_then(Value::as_array).ok_or_else(wrong)?;
        let texts = values.iter().map(|value| value.as_str().map(Into::into));
        Ok(texts.collect::<Option<_>>().ok_or_else(wrong)?)
    }

    fn addresses(&self, key: &str) -> Result<Box<[ServerAddress]>, Box<str>> {
        self.texts(key)?
            .iter()
            .map(|text| ServerAddress::parse(text).map_err(|error| error.to_string().into()))
            .collect()
    }
}
