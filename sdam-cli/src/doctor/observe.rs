//! Observes a deployment by looking up names, connecting, reading replies and logging in, without
//! judging the results.

mod canary;
mod deployment;
mod host;
mod line;
mod records;

use std::collections::BTreeSet;

use futures::stream::{FuturesUnordered, StreamExt};
use sdam::Runtime;
use sdam_core::{
    address::ServerAddress, hello::Hello, options::Options, topology::TopologyType,
    uri::ConnectionString,
};

use self::line::{Limits, Line};
use super::{
    arguments::Arguments,
    observation::{Canary, Host, Login, Observation},
};

/// Observes the deployment that the connection string `uri` names.
///
/// Takes at most about four times the limit of a single step, plus the same time again for the write
/// test; without `--timeout` at most 36 s each, or four times a longer `connectTimeoutMS`.
pub(super) async fn observe(arguments: &Arguments, uri: &str, runtime: &Runtime) -> Observation {
    let target = &arguments.target;
    let mut seen = Observation::default();
    let string = match ConnectionString::parse(uri) {
        Ok(string) => string,
        Err(error) => {
            seen.config = Some(error);
            return seen;
        }
    };
    let limits = Limits::new(&runtime.backend, arguments.timeout, string.connect_timeout());
    let Some(options) = configured(string, runtime, &limits, &mut seen).await else {
        return seen;
    };
    seen.warnings = options.multi_threaded_warnings();
    let started = target.builder(options.clone()).start(runtime.clone());
    let prepared = started.and_then(|topology| {
        let line = Line::new(target, &options, runtime, &limits)?;
        Ok((topology, line))
    });
    match prepared {
        Ok((topology, line)) => {
            (seen.hosts, seen.login) = all_hosts(&line, &options).await;
            seen.deployment = Some(deployment::look(&topology, &options, &limits).await);
            topology.close().await;
            if let Some(collection) = &arguments.write {
                // If a login has failed, do not log in again, because repeated failures may lock
                // the account.
                let refused = seen.login.as_ref().and_then(|login| login.error.clone());
                let written = match refused {
                    Some(error) => Canary::refused(collection, error),
                    None => canary::write(target, &options, runtime, collection, limits.all).await,
                };
                seen.canary = Some(written);
            }
        }
        Err(error) => seen.config = Some(error),
    }
    seen.options = Some(options);
    seen
}

/// Returns the options of `string`, after a look-up of the records of a `mongodb+srv` string.
async fn configured(
    string: ConnectionString,
    runtime: &Runtime,
    limits: &Limits,
    seen: &mut Observation,
) -> Option<Options> {
    seen.warnings = string.warnings().to_vec();
    let string = match string.srv().cloned() {
        Some(srv) => records::look_up(string, &srv, &runtime.backend, limits, seen).await?,
        None => string,
    };
    string.into_options().map_err(|error| seen.config = Some(error)).ok()
}

/// Checks all seeds concurrently, and every other member as soon as a server names it.
async fn all_hosts(line: &Line<'_>, options: &Options) -> (Vec<Host>, Option<Login>) {
    let mut known: BTreeSet<ServerAddress> = options.seeds.iter().cloned().collect();
    let seeds = known.clone().into_iter();
    let mut running: FuturesUnordered<_> = seeds.map(|seed| line.check(seed, None)).collect();
    let follows =
        !matches!(options.topology_type(), TopologyType::Single | TopologyType::LoadBalanced);
    let (mut hosts, mut login) = (Vec::new(), None);
    while let Some((host, own_login)) = running.next().await {
        login = login.or(own_login);
        let hello = host.greeting.as_ref().map(|greeting| &greeting.hello);
        for member in hello.filter(|_| follows).into_iter().flat_map(members) {
            if known.len() < options.max_servers && known.insert(member.clone()) {
                running.push(line.check(member.clone(), Some(host.address.clone())));
            }
        }
        hosts.push(host);
    }
    hosts.sort_by(|a, b| {
        (a.named_by.is_some(), &a.address).cmp(&(b.named_by.is_some(), &b.address))
    });
    (hosts, login)
}

/// Returns the members that a server names, and the server's own name.
pub(super) fn members(hello: &Hello) -> impl Iterator<Item = &ServerAddress> {
    let lists = [&hello.hosts, &hello.passives, &hello.arbiters];
    lists.into_iter().flatten().chain(&hello.me)
}
