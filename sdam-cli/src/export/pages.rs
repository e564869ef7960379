//! Creates the requested pages, each for the deployment that the request names.

use std::{borrow::Cow, fmt::Display, rc::Rc, time::Duration};

use hyper::{Response, StatusCode, http::request::Parts};
use sdam::Topology;
use sdam_core::{
    address::ServerAddress,
    read_preference::{ReadMode, ReadPreference, TagSet},
    server::ServerType,
    topology::TopologyDescription,
};
use sdam_select::{criteria::Criteria, explain::explain, settings::Settings, staleness::lag};

use super::{
    PAGES,
    fleet::{Exported, Fleet},
};
use crate::{cli::seconds, http, json, page::Page, terminal::json_line};

/// The status and text of the answer to an invalid request.
struct Refusal(StatusCode, String);

/// Returns the requested page.
pub(super) fn answer(fleet: &Fleet, request: &Parts) -> Response<String> {
    let page = match request.uri.path() {
        "/" => others(request, &[]).map(|()| http::text(StatusCode::OK, PAGES)),
        http::HEALTHY => others(request, &[]).map(|()| http::text(StatusCode::OK, "ok\n")),
        "/metrics" => others(request, &[]).map(|()| metrics(&fleet.metrics())),
        "/probe" => requested(fleet, request, &["target"]).map(|it| metrics(&it.metrics())),
        "/topology" => requested(fleet, request, &["target"]).map(|it| topology(&it)),
        "/healthz" => Wanted::of(request).and_then(|wanted| {
            let known = ["target", "read", "tags", "maxLag"];
            described(fleet, request, &known, |topology, description| {
                health(description, &Settings::new(topology.options()), &wanted)
            })
        }),
        "/primary" => described(fleet, request, &["target"], |_, description| primary(description)),
        "/member" => Asked::of(request).and_then(|asked| {
            described(fleet, request, &["target", "server", "is"], |_, description| {
                asked.answer(description)
            })
        }),
        _ => Ok(http::status(StatusCode::NOT_FOUND)),
    };
    page.unwrap_or_else(|Refusal(status, said)| http::text(status, format!("{said}\n")))
}

/// Returns the page that `page` creates from the topology of the requested deployment, or an error
/// if there is no topology yet.
fn described(
    fleet: &Fleet,
    request: &Parts,
    known: &[&str],
    page: impl FnOnce(&Topology, &TopologyDescription) -> Response<String>,
) -> Result<Response<String>, Refusal> {
    let deployment = requested(fleet, request, known)?;
    let unknown = |why| Refusal(StatusCode::SERVICE_UNAVAILABLE, why);
    let topology = deployment.topology().map_err(unknown)?;
    Ok(page(topology, topology.snapshot().description()))
}

/// Returns the deployment that a request names. Only names from `--targets` are accepted, so a
/// request cannot make this program connect to any other deployment.
fn requested(fleet: &Fleet, request: &Parts, known: &[&str]) -> Result<Rc<Exported>, Refusal> {
    others(request, known)?;
    let Some(wanted) = parameter(request, "target") else {
        let said = "the parameter target is missing: the name of a deployment";
        return fleet.only().ok_or_else(|| bad(said));
    };
    let said = "no deployment of --targets has this name";
    fleet.find(&wanted).ok_or_else(|| Refusal(StatusCode::NOT_FOUND, said.to_owned()))
}

/// Returns the value of the parameter `wanted`.
fn parameter<'r>(request: &'r Parts, wanted: &str) -> Option<Cow<'r, str>> {
    http::parameters(request).find(|(name, _)| name == wanted).map(|(_, value)| value)
}

/// Returns an error if a parameter is unknown. Prometheus sends only parameters that a user has
/// configured, and the user would not notice that an unknown parameter has no effect.
fn others(request: &Parts, known: &[&str]) -> Result<(), Refusal> {
    match http::parameters(request).find(|(name, _)| !known.contains(&&**name)) {
        Some((name, _)) => Err(bad(format!("there is no parameter {name}"))),
        None => Ok(()),
    }
}

fn bad(said: impl Display) -> Refusal {
    Refusal(StatusCode::BAD_REQUEST, said.to_string())
}

fn metrics(page: &Page) -> Response<String> {
    let content_type = "text/plain; version=0.0.4; charset=utf-8";
    http::typed(StatusCode::OK, content_type, page.to_string())
}

/// Returns the topology as JSON. If there is no topology yet, returns an empty topology with the
/// reason.
fn topology(deployment: &Exported) -> Response<String> {
    let mut json = match deployment.topology() {
        Ok(topology) => json::snapshot(topology.snapshot().description()),
        Err(reason) => {
            let mut json = json::snapshot(&TopologyDescription::default());
            json["error"] = reason.into();
            json
        }
    };
    if deployment.named.is_simulated {
        json["simulated"] = true.into();
    }
    http::typed(StatusCode::OK, "application/json", format!("{}\n", json_line(&json)))
}

/// Returns the health page, which tells whether the requested kind of operation is possible.
fn health(
    topology: &TopologyDescription,
    settings: &Settings,
    wanted: &Wanted,
) -> Response<String> {
    // Explain which servers could be selected instead of selecting one, because a health request
    // must not be counted as an operation.
    let explanation = explain(topology, settings, &wanted.criteria);
    let lags: Vec<_> = explanation
        .serving()
        // Behind a direct connection, a read that asks for the primary succeeds on a secondary.
        .filter(|server| !wanted.wants_primary || server.server_type.is_writable())
        .map(|server| topology.server(&server.address).and_then(|own| lag(topology, own)))
        .collect();
    let is_near = |lag: &Option<Duration>| lag.is_none_or(|lag| Some(lag) <= wanted.max_lag);
    match wanted.max_lag {
        _ if lags.is_empty() => {
            let mut said = format!("{explanation:#}\n");
            if wanted.wants_primary && explanation.serving().next().is_some() {
                said += "the connection is direct, and the server is no primary\n";
            }
            http::text(StatusCode::SERVICE_UNAVAILABLE, said)
        }
        Some(limit) if !lags.iter().any(is_near) => {
            let least = lags.iter().flatten().min().copied().unwrap_or_default();
            let (least, limit) = (least.as_secs_f64(), limit.as_secs_f64());
            let said = format!("the nearest server lags by {least:.1} s, more than {limit} s\n");
            http::text(StatusCode::SERVICE_UNAVAILABLE, said)
        }
        _ => http::text(StatusCode::OK, "ok\n"),
    }
}

/// The operation that a health request is about: a write, or a read with a read preference.
struct Wanted {
    criteria: Criteria,
    /// True for a read with the mode `primary`.
    wants_primary: bool,
    max_lag: Option<Duration>,
}

impl Wanted {
    fn of(request: &Parts) -> Result<Self, Refusal> {
        let parameter = |wanted| parameter(request, wanted);
        let Some(mode) = parameter("read") else {
            if parameter("tags").or(parameter("maxLag")).is_some() {
                return Err(bad("tags and maxLag need read: the mode of a read preference"));
            }
            let criteria = Criteria::write();
            return Ok(Self { criteria, wants_primary: false, max_lag: None });
        };
        let mode = ReadMode::parse(&mode)
            .ok_or_else(|| bad(format!("{mode} is not a read preference mode")))?;
        let mut preference = ReadPreference::new(mode);
        if let Some(text) = parameter("tags") {
            let tags = text.split(',').map(|tag| tag.split_once(':')).collect::<Option<TagSet>>();
            let tags = tags
                .ok_or_else(|| bad("tags: it needs names and values, for example dc:ny,rack:1"))?;
            preference = preference.with_tag_sets(vec![tags]);
        }
        let max_lag = parameter("maxLag").map(|text| seconds(&text)).transpose();
        Ok(Self {
            criteria: Criteria::read(preference).map_err(bad)?,
            wants_primary: mode == ReadMode::Primary,
            max_lag: max_lag.map_err(|said| bad(format!("maxLag: {said}")))?,
        })
    }
}

fn primary(topology: &TopologyDescription) -> Response<String> {
    let (status, said) = match topology.primary() {
        Some(server) => (StatusCode::OK, server.address.to_string()),
        None => (StatusCode::SERVICE_UNAVAILABLE, format!("no primary is known: {topology}")),
    };
    http::text(status, said + "\n")
}

/// A request that asks whether a member has a role.
struct Asked {
    server: ServerAddress,
    role: Role,
}

#[derive(Clone, Copy, strum::Display, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
enum Role {
    Primary,
    Secondary,
    /// Any server with data that clients can read, including a mongos and a server outside any set.
    Readable,
}

impl Asked {
    fn of(request: &Parts) -> Result<Self, Refusal> {
        let server = parameter(request, "server").ok_or_else(|| {
            bad("the parameter server is missing: HOST:PORT of a member, as the replica set names it")
        })?;
        let roles = "primary, secondary or readable";
        let role = parameter(request, "is")
            .ok_or_else(|| bad(format!("the parameter is is missing: {roles}")))?;
        let unknown = |_| bad(format!("is={role}: there is no such role; use {roles}"));
        let role = role.parse().map_err(unknown)?;
        let server =
            ServerAddress::parse(&server).map_err(|error| bad(format!("server: {error}")))?;
        Ok(Self { server, role })
    }

    fn answer(&self, topology: &TopologyDescription) -> Response<String> {
        let Some(server) = topology.server(&self.server) else {
            return self.unknown(topology);
        };
        let (found, name) = (server.server_type, self.role);
        let (status, said) = match (self.role.is(found), &server.error) {
            (true, _) => (StatusCode::OK, format!("{} is {name}", self.server)),
            (false, Some(error)) if !found.is_available() => {
                let said = format!("{} is not known to be {name}: {error:#}", self.server);
                (StatusCode::SERVICE_UNAVAILABLE, said)
            }
            (false, _) => {
                let said = format!("{} is not {name}, its type is {found}", self.server);
                (StatusCode::SERVICE_UNAVAILABLE, said)
            }
        };
        http::text(status, said + "\n")
    }

    /// Returns the answer about a server that is not in the topology. Until a server has replied,
    /// the topology consists of the seeds, so the server may still turn out to be a member.
    fn unknown(&self, topology: &TopologyDescription) -> Response<String> {
        let mut servers = topology.servers().iter();
        let status = if servers.any(|own| own.server_type.is_available()) {
            StatusCode::NOT_FOUND
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        };
        let known: Vec<_> = topology.servers().iter().map(|own| own.address.as_str()).collect();
        let known = known.join(", ");
        let said =
            format!("{} is no member; name it as the replica set does: {known}\n", self.server);
        http::text(status, said)
    }
}

impl Role {
    fn is(self, found: ServerType) -> bool {
        match self {
            Self::Primary => found == ServerType::RsPrimary,
            Self::Secondary => found == ServerType::RsSecondary,
            Self::Readable => found.is_data_bearing(),
        }
    }
}

#[cfg(test)]
mod tests {
    use sdam_core::{
        ids::ServerId, options::Options, server::ServerDescription, time::Instant,
        topology::TopologyType,
    };

    use super::*;

    #[test]
    fn a_server_that_lags_more_than_wanted_is_not_healthy() {
        let written = |port, server_type, date| {
            let address = ServerAddress::new("a", port);
            let mut server = ServerDescription::unknown(ServerId::from_u64(1), address);
            server.server_type = server_type;
            server.wire_versions.max = 21;
            server.last_update_time = Some(Instant::from_millis(1));
            server.last_write_date = Some(date);
            server
        };
        let servers = [
            written(1, ServerType::RsPrimary, 100_000),
            written(2, ServerType::RsSecondary, 60_000),
        ];
        let topology = TopologyDescription::new(TopologyType::ReplicaSetWithPrimary, servers);
        let settings = Settings::new(&Options::parse("mongodb://a/?replicaSet=rs").unwrap());
        let check = |mode, limit, expected| {
            let criteria = Criteria::read(ReadPreference::new(mode)).unwrap();
            let max_lag = Some(Duration::from_secs(limit));
            let wanted = Wanted { criteria, wants_primary: mode == ReadMode::Primary, max_lag };
            let page = health(&topology, &settings, &wanted);
            assert_eq!(page.status(), expected, "{limit} {}", page.body());
        };
        check(ReadMode::Secondary, 40, StatusCode::OK);
        check(ReadMode::Secondary, 39, StatusCode::SERVICE_UNAVAILABLE);
        // The primary counts as a server without lag.
        check(ReadMode::SecondaryPreferred, 39, StatusCode::SERVICE_UNAVAILABLE);
        check(ReadMode::Primary, 0, StatusCode::OK);
    }
}
