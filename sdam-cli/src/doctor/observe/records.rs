//! Looks up the DNS records for a `mongodb+srv` string.

use std::time::Instant;

use futures::future;
use sdam::runtime::Backend;
use sdam_core::{
    error::{Error, ErrorKind, Stage},
    options,
    rng::Rng,
    uri::ConnectionString,
};

use super::line::Limits;
use crate::doctor::observation::{Observation, Srv};

/// Looks up the DNS records for `string`, and stores them in `seen`. Returns `string` with its
/// hosts filled in, or `None` if the records cannot be used.
pub(super) async fn look_up(
    string: ConnectionString,
    srv: &options::Srv,
    backend: &Backend,
    limits: &Limits,
    seen: &mut Observation,
) -> Option<ConnectionString> {
    let Some(name_server) = &backend.resolver else {
        seen.config = string.into_options().err();
        return None;
    };
    let begun = Instant::now();
    let (name, limit) = (srv.query_name(), Some(limits.step));
    let (hosts, texts) = future::join(
        limits.within(name_server.lookup_srv(&name, limit)),
        limits.within(name_server.lookup_txt(&srv.host, limit)),
    )
    .await;
    let (hosts, texts) = (flat(hosts), flat(texts));
    let took = begun.elapsed();
    let resolved = match (&hosts, &texts) {
        (Ok(records), Ok(texts)) => {
            let mut rng = Rng::new(backend.next_seed());
            Some(string.resolved(records, texts, &mut rng))
        }
        _ => None,
    };
    let (string, refused) = match resolved.transpose() {
        Ok(string) => (string, None),
        Err(error) => (None, Some(error)),
    };
    seen.srv = Some(Srv {
        host: srv.host.to_string(),
        name,
        hosts: hosts.map(|records| records.hosts.clone()),
        texts,
        refused,
        took,
    });
    string
}

/// Converts `None`, the outcome of a look-up that took too long, into an error.
fn flat<T>(outcome: Option<Result<T, Error>>) -> Result<T, Error> {
    let late = || {
        let text = "the name server did not answer in time";
        Error::new(ErrorKind::Timeout, Stage::Dns, text)
    };
    outcome.ok_or_else(late)?.map_err(Error::without_context)
}
