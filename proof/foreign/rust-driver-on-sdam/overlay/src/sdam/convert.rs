//! Conversions between the driver's and the framework's types.

use std::sync::Arc;

use ::sdam::{
    Clock, Criteria, Instant, Options, ReadMode, ServerId, WireVersions,
    discovery::{
        ids::ElectionTuple,
        options::{ServerApi as SdamServerApi, ServerMonitoringMode as SdamMonitoringMode, Srv},
        read_preference::TagSet,
        server::Rtt,
    },
    selection::candidate::Candidates,
};

use super::{
    ServerDescription, ServerInfo, ServerType, TopologyType, TopologyVersion,
    description::server::{DRIVER_MAX_WIRE_VERSION, DRIVER_MIN_WIRE_VERSION},
    error,
};
use crate::{
    bson::{DateTime, oid::ObjectId},
    client::options::{ClientOptions, ServerAddress, ServerMonitoringMode},
    error::{Error, Result},
    hello::{HelloCommandResponse, HelloReply, LastWrite},
    selection_criteria::{ReadPreference, SelectionCriteria},
};

pub(crate) fn address(address: &ServerAddress) -> ::sdam::ServerAddress {
    match address {
        ServerAddress::Tcp { host, port } => ::sdam::ServerAddress::new(
            host,
            port.unwrap_or(::sdam::discovery::address::DEFAULT_PORT),
        ),
        #[cfg(unix)]
        ServerAddress::Unix { path } => ::sdam::ServerAddress::unix(&path.to_string_lossy()),
    }
}

pub(crate) fn driver_address(address: &::sdam::ServerAddress) -> ServerAddress {
    match address.port() {
        #[cfg(unix)]
        None => ServerAddress::Unix { path: address.host().into() },
        port => ServerAddress::Tcp { host: address.host().to_string(), port },
    }
}

pub(crate) fn object_id(id: ObjectId) -> ::sdam::ObjectId {
    ::sdam::ObjectId::from_bytes(id.bytes())
}

pub(crate) fn driver_object_id(id: ::sdam::ObjectId) -> ObjectId {
    ObjectId::from_bytes(id.bytes())
}

/// Returns the framework's options. The driver itself applies the options of pools and commands.
pub(crate) fn options(options: &ClientOptions) -> Options {
    let mut new = Options::new(options.hosts.iter().map(address).collect());
    new.direct_connection = options.direct_connection;
    new.load_balanced = options.load_balanced.unwrap_or(false);
    new.replica_set = options.repl_set_name.as_deref().map(Into::into);
    new.heartbeat_frequency = options.heartbeat_freq;
    new.deviations.min_heartbeat_frequency = options.min_heartbeat_frequency();
    new.server_monitoring_mode = match options.server_monitoring_mode {
        Some(ServerMonitoringMode::Stream) => SdamMonitoringMode::Stream,
        Some(ServerMonitoringMode::Poll) => SdamMonitoringMode::Poll,
        Some(ServerMonitoringMode::Auto) | None => SdamMonitoringMode::Auto,
    };
    if let Some(timeout) = options.connect_timeout {
        new.connect_timeout = Some(timeout).filter(|limit| !limit.is_zero());
    }
    if let Some(threshold) = options.local_threshold {
        new.local_threshold = threshold;
    }
    if let Some(timeout) = options.server_selection_timeout {
        new.server_selection_timeout = timeout;
    }
    new.server_api = options.server_api.as_ref().map(|api| {
        let mut new = SdamServerApi::v1();
        new.version = api.version.to_string().into();
        new.strict = api.strict;
        new.deprecation_errors = api.deprecation_errors;
        new
    });
    new.srv = options.original_srv_info.as_ref().map(|info| {
        let mut srv = Srv::new(&info.hostname);
        srv.max_hosts = options.srv_max_hosts.unwrap_or(0);
        srv
    });
    new.wire_versions = WireVersions { min: DRIVER_MIN_WIRE_VERSION, max: DRIVER_MAX_WIRE_VERSION };
    new.driver_name = "the MongoDB Rust driver".into();
    // The driver's own tests poll faster than allowed and simulate checks.
    #[cfg(test)]
    {
        let frequency = new.heartbeat_frequency.unwrap_or(new.deviations.min_heartbeat_frequency);
        let minimum = &mut new.deviations.min_heartbeat_frequency;
        *minimum = frequency.min(*minimum);
        let test = options.test_options.as_ref();
        if test.is_some_and(|test| test.disable_monitoring_threads) {
            new.connect_timeout = None;
        }
    }
    new
}

/// Converts times of the framework's clock to calendar times.
#[derive(Clone, Copy)]
pub(crate) struct Now {
    instant: Instant,
    date: DateTime,
}

impl Now {
    pub(crate) fn of(clock: &dyn Clock) -> Self {
        Self { instant: clock.now(), date: DateTime::now() }
    }

    fn date_of(self, time: Instant) -> DateTime {
        let age = self.instant.since(time).as_millis();
        DateTime::from_millis(self.date.timestamp_millis() - i64::try_from(age).unwrap_or(0))
    }
}

const SERVER_TYPES: [(::sdam::ServerType, ServerType); 8] = [
    (::sdam::ServerType::Standalone, ServerType::Standalone),
    (::sdam::ServerType::Mongos, ServerType::Mongos),
    (::sdam::ServerType::RsPrimary, ServerType::RsPrimary),
    (::sdam::ServerType::RsSecondary, ServerType::RsSecondary),
    (::sdam::ServerType::RsArbiter, ServerType::RsArbiter),
    (::sdam::ServerType::RsOther, ServerType::RsOther),
    (::sdam::ServerType::RsGhost, ServerType::RsGhost),
    (::sdam::ServerType::LoadBalancer, ServerType::LoadBalancer),
];

const TOPOLOGY_TYPES: [(::sdam::TopologyType, TopologyType); 5] = [
    (::sdam::TopologyType::Single, TopologyType::Single),
    (::sdam::TopologyType::ReplicaSetNoPrimary, TopologyType::ReplicaSetNoPrimary),
    (::sdam::TopologyType::ReplicaSetWithPrimary, TopologyType::ReplicaSetWithPrimary),
    (::sdam::TopologyType::Sharded, TopologyType::Sharded),
    (::sdam::TopologyType::LoadBalanced, TopologyType::LoadBalanced),
];

fn server_type(server_type: ::sdam::ServerType) -> ServerType {
    let pair = SERVER_TYPES.into_iter().find(|(own, _)| *own == server_type);
    pair.map_or(ServerType::Unknown, |(_, driver)| driver)
}

pub(crate) fn topology_type(topology_type: ::sdam::TopologyType) -> TopologyType {
    let pair = TOPOLOGY_TYPES.into_iter().find(|(own, _)| *own == topology_type);
    pair.map_or(TopologyType::Unknown, |(_, driver)| driver)
}

pub(crate) fn driver_description(
    server: &::sdam::ServerDescription,
    now: Now,
) -> ServerDescription {
    let address = driver_address(&server.address);
    let has_reply =
        server.server_type.is_available() && server.server_type != ::sdam::ServerType::LoadBalancer;
    ServerDescription {
        server_type: server_type(server.server_type),
        last_update_time: server.last_update_time.map(|time| now.date_of(time)),
        average_round_trip_time: server.rtt.map(|rtt| rtt.average),
        reply: match &server.error {
            Some(error) => Err(error::to_driver(error)),
            None => Ok(has_reply.then(|| HelloReply {
                server_address: address.clone(),
                command_response: hello(server),
                raw_command_response: Default::default(),
                cluster_time: None,
            })),
        },
        address,
    }
}

/// Rebuilds the hello reply that led to this description: the fields that descriptions use.
fn hello(server: &::sdam::ServerDescription) -> HelloCommandResponse {
    use ::sdam::ServerType as Type;
    let is = |server_type| (server.server_type == server_type).then_some(true);
    let members = |members: &[::sdam::ServerAddress]| {
        (!members.is_empty()).then(|| members.iter().map(ToString::to_string).collect())
    };
    HelloCommandResponse {
        is_writable_primary: is(Type::RsPrimary),
        secondary: is(Type::RsSecondary),
        arbiter_only: is(Type::RsArbiter),
        hidden: is(Type::RsOther),
        is_replica_set: is(Type::RsGhost),
        msg: is(Type::Mongos).map(|_| "isdbgrid".to_string()),
        hosts: members(&server.hosts),
        passives: members(&server.passives),
        arbiters: members(&server.arbiters),
        me: server.me.as_ref().map(ToString::to_string),
        primary: server.primary.as_ref().map(ToString::to_string),
        set_name: server.set_name.as_deref().map(Into::into),
        set_version: server.set_version().and_then(|version| version.try_into().ok()),
        election_id: server.election_id().map(driver_object_id),
        min_wire_version: Some(server.wire_versions.min),
        max_wire_version: Some(server.wire_versions.max),
        tags: (!server.tags.is_empty()).then(|| {
            let tags = server.tags.iter();
            tags.map(|(name, value)| (name.into(), value.into())).collect()
        }),
        logical_session_timeout_minutes: server
            .logical_session_timeout_minutes
            .and_then(|minutes| minutes.try_into().ok()),
        last_write: server
            .last_write_date
            .map(|millis| LastWrite { last_write_date: DateTime::from_millis(millis) }),
        topology_version: server.topology_version.map(|version| TopologyVersion {
            process_id: driver_object_id(version.process_id),
            counter: version.counter,
        }),
        ..Default::default()
    }
}

/// Converts the driver's description to one from which the framework can select.
pub(crate) fn description(server: &ServerDescription) -> ::sdam::ServerDescription {
    let mut new =
        ::sdam::ServerDescription::unknown(ServerId::from_u64(0), address(&server.address));
    let types = SERVER_TYPES.into_iter().find(|(_, driver)| *driver == server.server_type);
    new.server_type = types.map_or(::sdam::ServerType::Unknown, |(own, _)| own);
    new.rtt = server.average_round_trip_time.map(|average| Rtt { average, ..Rtt::default() });
    new.last_update_time = server
        .last_update_time
        .and_then(|date| Some(Instant::from_millis(date.timestamp_millis().try_into().ok()?)));
    if let Ok(Some(reply)) = &server.reply {
        let reply = &reply.command_response;
        let written = reply.last_write.as_ref();
        new.last_write_date = written.map(|write| write.last_write_date.timestamp_millis());
        new.tags = reply.tags.iter().flatten().map(pair).collect();
        new.wire_versions = WireVersions {
            min: reply.min_wire_version.unwrap_or(0),
            max: reply.max_wire_version.unwrap_or(0),
        };
        new.election = ElectionTuple::default();
    }
    new
}

fn pair<'t>((name, value): (&'t String, &'t String)) -> (&'t str, &'t str) {
    (name, value)
}

pub(crate) fn sdam_topology_type(topology_type: TopologyType) -> ::sdam::TopologyType {
    let pair = TOPOLOGY_TYPES.into_iter().find(|(_, driver)| *driver == topology_type);
    pair.map_or(::sdam::TopologyType::Unknown, |(own, _)| own)
}

/// Returns the framework's criteria. A predicate selects among all data-bearing servers.
pub(crate) fn criteria(criteria: &SelectionCriteria, clock: &Arc<dyn Clock>) -> Result<Criteria> {
    let SelectionCriteria::Predicate(predicate) = criteria else {
        return preference_criteria(criteria);
    };
    let any = SelectionCriteria::from(ReadPreference::Nearest { options: None });
    let (predicate, clock) = (Arc::clone(predicate), Arc::clone(clock));
    let selector = move |candidates: &mut Candidates<'_>| {
        let now = Now::of(&*clock);
        candidates.retain(|candidate| {
            let server = driver_description(candidate.server, now);
            predicate(&ServerInfo::new_owned(server))
        });
    };
    Ok(preference_criteria(&any)?.with_selector(Arc::new(selector)))
}

/// Returns the framework's criteria for a read preference.
pub(crate) fn preference_criteria(criteria: &SelectionCriteria) -> Result<Criteria> {
    match criteria.as_read_pref() {
        None | Some(ReadPreference::Primary) => Ok(Criteria::primary()),
        Some(preference) => Criteria::read(read_preference(preference))
            .map_err(|error| Error::invalid_argument(error.to_string())),
    }
}

pub(crate) fn read_preference(preference: &ReadPreference) -> ::sdam::ReadPreference {
    let mut new = ::sdam::ReadPreference::new(match preference {
        ReadPreference::Primary => ReadMode::Primary,
        ReadPreference::Secondary { .. } => ReadMode::Secondary,
        ReadPreference::PrimaryPreferred { .. } => ReadMode::PrimaryPreferred,
        ReadPreference::SecondaryPreferred { .. } => ReadMode::SecondaryPreferred,
        ReadPreference::Nearest { .. } => ReadMode::Nearest,
    });
    let tag_sets = preference.tag_sets().map(|sets| {
        let sets = sets.iter();
        sets.map(|tags| tags.iter().map(pair).collect::<TagSet>()).collect()
    });
    new.tag_sets = tag_sets.unwrap_or_default();
    new.max_staleness = preference.max_staleness();
    new
}
