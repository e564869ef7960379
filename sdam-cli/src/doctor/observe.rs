//! Observes a deployment by looking up names, connecting, reading replies and logging in, without
//! judging the results.

mod line;

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use bson::{DateTime, Document, doc, oid::ObjectId};
use futures::{
    future,
    stream::{FuturesUnordered, StreamExt},
};
use sdam::{
    Criteria, Runtime, Topology,
    client::{Client, Command},
    runtime::Backend,
};
use sdam_core::{
    address::ServerAddress,
    error::{Error, ErrorKind, Stage},
    hello::Hello,
    options::{self, Options},
    rng::Rng,
    topology::TopologyType,
    uri::ConnectionString,
};
use sdam_select::diagnose::diagnose;

use self::line::{Limits, Line};
use super::{
    Arguments, Collection,
    observation::{Canary, Discovery, Host, Login, Observation, Srv},
};
use crate::target::Target;

/// Observes the deployment that the connection string `uri` names.
///
/// Takes at most 3.6 times `--timeout`, and at most the same time again for the write test. Without
/// `--timeout`, `connectTimeoutMS` counts instead, but as at least 10 s.
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
            seen.deployment = Some(look_at_deployment(&topology, &options, &limits).await);
            topology.close().await;
            if let Some(collection) = &arguments.write {
                // If a login has failed, do not log in again, because repeated failures may lock
                // the account.
                let refused = seen.login.as_ref().and_then(|login| login.error.clone());
                let written = match refused {
                    Some(error) => Canary::refused(collection, error),
                    None => write_canary(target, &options, runtime, collection, limits.all).await,
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
        Some(srv) => look_up_records(string, &srv, &runtime.backend, limits, seen).await?,
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

/// Looks up the DNS records for `string`, and stores them in `seen`. Returns `string` with its
/// hosts filled in, or `None` if the records cannot be used.
async fn look_up_records(
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

/// Waits until every server has answered or failed, and then explains the selection of servers for
/// writes and for reads.
async fn look_at_deployment(topology: &Topology, options: &Options, limits: &Limits) -> Discovery {
    // Ignore a timeout: the topology shows which servers have not answered.
    let _known = topology
        .wait_for(
            |now| {
                let mut servers = now.description().servers().iter();
                let all = servers.all(|server| server.last_update_time.is_some());
                all.then_some(())
            },
            limits.step.min(limits.left()),
        )
        .await;
    let description = Arc::clone(topology.snapshot().description());
    let read = Criteria::read(options.read_preference.clone());
    let read = topology.explain(&read.unwrap_or_else(|_| Criteria::primary()));
    let write = topology.explain(&Criteria::write());
    let mut diagnoses = diagnose(&description, &write);
    for diagnosis in diagnose(&description, &read) {
        if !diagnoses.contains(&diagnosis) {
            diagnoses.push(diagnosis);
        }
    }
    Discovery { topology: description, write, read, diagnoses }
}

/// Inserts a document, waits for a majority, and deletes the document.
async fn write_canary(
    target: &Target,
    options: &Options,
    runtime: &Runtime,
    collection: &Collection,
    limit: Duration,
) -> Canary {
    let begun = Instant::now();
    let mut options = options.clone();
    options.server_selection_timeout = limit;
    let outcome = match target.builder(options).client(runtime.clone()) {
        Ok(client) => {
            let outcome = insert_and_delete(&client, collection, limit).await;
            client.close().await;
            outcome
        }
        Err(error) => Err((
            Canary::INSERT,
            Error::new(ErrorKind::Internal, Stage::Operation, error.to_string()),
        )),
    };
    Canary { collection: collection.to_string(), outcome, took: begun.elapsed() }
}

async fn insert_and_delete(
    client: &Client,
    collection: &Collection,
    limit: Duration,
) -> Result<(), (&'static str, Error)> {
    let id = ObjectId::new();
    let concern = doc! {
        "w": "majority", "wtimeout": i64::try_from(limit.as_millis()).unwrap_or(i64::MAX),
    };
    let document = doc! { "_id": id, "by": "sdam doctor", "at": DateTime::now() };
    let insert = doc! {
        "insert": &*collection.name, "documents": [document], "writeConcern": concern.clone(),
    };
    let inserted = run(client, collection, &insert, limit).await;
    // Delete the document even after an error, because it may have been inserted nevertheless.
    let delete = doc! {
        "delete": &*collection.name, "deletes": [{ "q": { "_id": id }, "limit": 1 }],
        "writeConcern": concern,
    };
    let deleted = run(client, collection, &delete, limit).await;
    inserted.map_err(|error| (Canary::INSERT, error))?;
    deleted.map_err(|error| (Canary::DELETE, error))
}

async fn run(
    client: &Client,
    collection: &Collection,
    command: &Document,
    limit: Duration,
) -> Result<(), Error> {
    let internal = |error: bson::error::Error| {
        Error::new(ErrorKind::Internal, Stage::Operation, error.to_string())
    };
    let bytes = bson::serialize_to_vec(command).map_err(internal)?;
    let command = Command::write(&collection.database, &bytes).with_timeout(limit);
    client.run(&command).await.map(drop)
}
