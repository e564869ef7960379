//! The visible servers in order, each with the verdict of server selection.

use sdam_core::server::ServerType;
use sdam_select::explain::{Explanation, Rejection, Verdict};

use super::{
    super::{
        super::model::{Model, Server, brief, state},
        state::{Sort, State},
        text::{age, millis},
    },
    View,
    table::tags,
};
use crate::terminal::Tone;

/// A server, and the verdict of server selection on it.
pub(super) struct Row<'m> {
    pub(super) server: &'m Server,
    /// The verdict for the chosen read preference.
    pub(super) verdict: Option<Verdict>,
}

/// Returns the servers that match the filter, in the chosen order.
pub(in super::super) fn ordered<'m>(model: &'m Model, state: &State) -> Vec<&'m Server> {
    // Tags may be typed as `dc:la` or `{dc: la}`.
    let filter = state.filter.to_lowercase().replace([' ', '{', '}'], "");
    let servers = model.servers().filter(|server| matches(server, &filter));
    let mut servers: Vec<&Server> = servers.collect();
    match state.sort {
        Sort::Address => {}
        Sort::Worst => servers.sort_by_key(|server| rank(server)),
        Sort::Slowest => servers.sort_by_key(|server| {
            let rtt = server.description.rtt.map(|rtt| rtt.average);
            std::cmp::Reverse(rtt)
        }),
    }
    servers
}

fn matches(server: &Server, filter: &str) -> bool {
    let description = &server.description;
    let role = state(description.server_type).to_lowercase();
    filter.is_empty()
        || description.address.as_str().contains(filter)
        || role.contains(filter)
        || tags(server).to_lowercase().contains(filter)
}

/// Returns the rank of a server, which is lowest for the worst servers.
fn rank(server: &Server) -> u8 {
    match server.description.server_type {
        ServerType::Unknown | ServerType::PossiblePrimary if server.error().is_some() => 0,
        ServerType::RsGhost | ServerType::RsOther => 1,
        ServerType::Unknown | ServerType::PossiblePrimary => 2,
        ServerType::RsSecondary => 4,
        ServerType::RsArbiter => 5,
        _writable => 3,
    }
}

/// Returns the rows of the table.
pub(super) fn rows<'a>(scene: &View<'a>) -> Vec<Row<'a>> {
    let servers = ordered(scene.model, scene.state).into_iter();
    servers.map(|server| Row { server, verdict: verdict(scene.reads.as_ref(), server) }).collect()
}

fn verdict(explanation: Option<&Explanation>, server: &Server) -> Option<Verdict> {
    let address = &server.description.address;
    let servers = &explanation?.servers;
    // Both lists are sorted by address.
    let index = servers.binary_search_by(|explained| explained.address.cmp(address));
    Some(servers.get(index.ok()?)?.verdict.clone())
}

impl Row<'_> {
    /// Explains in a few words why the server may or may not be chosen.
    pub(super) fn why(&self, model: &Model) -> (Tone, String) {
        let server = self.server;
        if !server.description.server_type.is_available() {
            let Some(error) = server.error() else {
                return (Tone::Faint, "no answer yet".to_owned());
            };
            let times = server.current_trouble().map_or(0, |trouble| trouble.checks);
            let times = if times > 1 { format!(" x{times}") } else { String::new() };
            return (Tone::Bad, format!("{}{times}", brief(error)));
        }
        if let Some(silence) = model.silence(server) {
            return (Tone::Bad, format!("silent for {}", age(silence)));
        }
        let rejection = match &self.verdict {
            Some(Verdict::Eligible { .. }) => return (Tone::Good, "in window".to_owned()),
            Some(Verdict::Rejected(rejection)) => rejection,
            _ => return (Tone::Faint, "-".to_owned()),
        };
        let words = match rejection {
            Rejection::Latency { average, fastest, threshold } => {
                let limit = *fastest + *threshold;
                let over = average.unwrap_or_default().saturating_sub(limit);
                format!("{} ms out", millis(over))
            }
            Rejection::NotPreferred { .. } => "not preferred".to_owned(),
            Rejection::Type { required, .. } => format!("not {required}"),
            Rejection::Stale { staleness, .. } => format!("stale by {}", age(*staleness)),
            Rejection::StalenessUnknown { .. } => "staleness unknown".to_owned(),
            Rejection::Tags { .. } => "other tags".to_owned(),
            _ => "left out".to_owned(),
        };
        (Tone::Faint, words)
    }
}
