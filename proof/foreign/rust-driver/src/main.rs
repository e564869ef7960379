//! Runs the official Rust driver against the simulated deployment: monitoring, writes, reads.
//!
//! usage: sdam-foreign-rust-driver PATH_OF_THE_SERVE_EXAMPLE
//!
//! There are no sleeps: every wait is for an event published by the driver, with a deadline.

use std::{
    error::Error,
    pin::Pin,
    process::{ExitCode, Stdio},
    time::{Duration, Instant},
};

use mongodb::{
    Client, ServerType, TopologyType,
    bson::{Document, doc, oid::ObjectId},
    event::{EventHandler, sdam::SdamEvent},
    options::{ClientOptions, ReadPreference, SelectionCriteria},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::watch,
    time::timeout,
};

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

const DEADLINE: Duration = Duration::from_secs(15);

/// A deployment in a separate process.
struct Serve {
    _process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    uri: String,
}

impl Serve {
    async fn start(arguments: &[&str]) -> Result<Self> {
        let path = std::env::args().nth(1).ok_or("the path of sdam is missing")?;
        let mut process = Command::new(path)
            .arg("serve")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let input = process.stdin.take().ok_or("no standard input")?;
        let output = process.stdout.take().ok_or("no standard output")?;
        let mut output = BufReader::new(output).lines();
        let uri = output.next_line().await?.ok_or("no connection string")?;
        Ok(Self { _process: process, input, output, uri })
    }

    async fn run(&mut self, command: &str) -> Result<Vec<String>> {
        self.input.write_all(format!("{command}\n").as_bytes()).await?;
        let mut answer = Vec::new();
        loop {
            let line = self.output.next_line().await?.ok_or("serve has ended")?;
            match &*line {
                "ok" => return Ok(answer),
                error if error.starts_with("error") => {
                    return Err(format!("{command}: {error}").into());
                }
                _ => answer.push(line),
            }
        }
    }
}

/// The driver's view of the deployment.
#[derive(Clone, Debug, Default)]
struct View {
    kind: Option<TopologyType>,
    servers: Vec<(String, ServerType)>,
    streamed: bool,
}

impl View {
    fn of_type(&self, wanted: ServerType) -> Vec<&str> {
        let servers = self.servers.iter();
        servers.filter(|(_, kind)| *kind == wanted).map(|(address, _)| address.as_str()).collect()
    }

    fn primary(&self) -> Option<String> {
        self.of_type(ServerType::RsPrimary).first().map(|address| (*address).to_owned())
    }

    fn whole(&self) -> bool {
        self.primary().is_some() && self.of_type(ServerType::RsSecondary).len() == 2
    }
}

struct Watched {
    client: Client,
    view: watch::Receiver<View>,
}

impl Watched {
    async fn connect(uri: &str) -> Result<Self> {
        let mut options = ClientOptions::parse(uri).await?;
        let (sender, view) = watch::channel(View::default());
        options.heartbeat_freq = Some(Duration::from_millis(500));
        options.server_selection_timeout = Some(DEADLINE);
        options.connect_timeout = Some(Duration::from_secs(1));
        options.sdam_event_handler = Some(EventHandler::callback(move |event| match event {
            SdamEvent::TopologyDescriptionChanged(event) => sender.send_modify(|view| {
                view.kind = Some(event.new_description.topology_type());
                let servers = event.new_description.servers();
                view.servers = servers
                    .iter()
                    .map(|(address, info)| (address.to_string(), info.server_type()))
                    .collect();
            }),
            SdamEvent::ServerHeartbeatSucceeded(event) if event.awaited => {
                sender.send_modify(|view| view.streamed = true);
            }
            _ => {}
        }));
        let client = Client::with_options(options)?;
        Ok(Self { client, view })
    }

    async fn until(&mut self, what: &str, predicate: impl Fn(&View) -> bool) -> Result<View> {
        let waiting = self.view.wait_for(|view| predicate(view));
        if let Ok(view) = timeout(DEADLINE, waiting).await {
            return Ok(view?.clone());
        }
        let view = self.view.borrow().clone();
        Err(format!("the driver never saw {what}; it sees {view:?}").into())
    }

    async fn write_and_read(&self, text: &str) -> Result<()> {
        let things = self.client.database("test").collection::<Document>("things");
        let id = ObjectId::new();
        things.insert_one(doc! { "_id": id, "text": text }).await?;
        let preference =
            SelectionCriteria::ReadPreference(ReadPreference::SecondaryPreferred { options: None });
        for found in [
            things.find_one(doc! { "_id": id }).await?,
            things.find_one(doc! { "_id": id }).selection_criteria(preference).await?,
        ] {
            let found = found.ok_or("what was written is not there")?;
            ensure(found.get_str("text")? == text, "another text was read")?;
        }
        Ok(())
    }
}

fn ensure(holds: bool, otherwise: &str) -> Result<()> {
    if holds { Ok(()) } else { Err(otherwise.into()) }
}

async fn replica_set(version: &str) -> Result<()> {
    let mut serve = Serve::start(&["--replica-set", "3", "--version", version]).await?;
    let mut watched = Watched::connect(&serve.uri).await?;
    let view = watched.until("the whole set", View::whole).await?;
    ensure(view.kind == Some(TopologyType::ReplicaSetWithPrimary), "no set with a primary")?;
    watched.write_and_read("before").await?;

    let first = view.primary();
    serve.run("stepdown").await?;
    let another = |view: &View| view.primary().is_some() && view.primary() != first;
    watched.until("another primary", another).await?;
    watched.write_and_read("after the step-down").await?;

    let second = watched.until("the whole set", View::whole).await?.primary();
    serve.run("kill primary").await?;
    watched.write_and_read("during the failover").await?;
    let third = |view: &View| view.primary().is_some() && view.primary() != second;
    watched.until("a third primary", third).await?;
    let status = serve.run("status").await?;
    let dead = status.iter().find(|line| line.contains(" down ")).ok_or("no member is down")?;
    let number = dead.split(' ').next().unwrap_or_default();
    serve.run(&format!("restart {number}")).await?;
    watched.until("the dead member back", View::whole).await?;
    watched.until("a streamed heartbeat", |view| view.streamed).await?;
    Ok(())
}

async fn split_brain() -> Result<()> {
    let mut serve = Serve::start(&["--replica-set", "3"]).await?;
    let mut watched = Watched::connect(&serve.uri).await?;
    let old = watched.until("the whole set", View::whole).await?.primary();
    serve.run("splitbrain").await?;
    let newer = |view: &View| view.primary().is_some() && view.primary() != old;
    watched.until("the newer primary", newer).await?;
    watched.write_and_read("to the newer primary").await?;
    serve.run("heal").await?;
    let view = watched.until("the whole set", View::whole).await?;
    ensure(view.primary() != old, "the old primary is back")
}

async fn role_changes() -> Result<()> {
    let mut serve = Serve::start(&["--replica-set", "3"]).await?;
    let mut watched = Watched::connect(&serve.uri).await?;
    watched.until("the whole set", View::whole).await?;
    serve.run("reconfig 2 priority=0 hidden=on").await?;
    watched.until("the member hidden", |view| view.servers.len() == 2).await?;
    serve.run("reconfig 2 hidden=off").await?;
    watched.until("the member shown", View::whole).await?;
    serve.run("maintenance 1 on").await?;
    watched.until("the maintenance", |view| view.of_type(ServerType::RsOther).len() == 1).await?;
    serve.run("maintenance 1 off").await?;
    watched.until("the member back", View::whole).await?;
    serve.run("shutdown 1").await?;
    watched.until("the member gone", |view| view.of_type(ServerType::Unknown).len() == 1).await?;
    watched.write_and_read("after the shutdown").await
}

async fn fail_points() -> Result<()> {
    let mut serve = Serve::start(&["--replica-set", "3"]).await?;
    let mut watched = Watched::connect(&serve.uri).await?;
    watched.until("the whole set", View::whole).await?;
    serve.run("failpoint primary commands=insert times=1 code=91").await?;
    watched.write_and_read("retried after an error").await?;
    serve.run("failpoint primary commands=insert times=1 close").await?;
    watched.write_and_read("retried after a closed connection").await
}

async fn sharded() -> Result<()> {
    let mut serve = Serve::start(&["--sharded", "2", "--version", "6.0"]).await?;
    let mut watched = Watched::connect(&serve.uri).await?;
    let mongoses = |count| move |view: &View| view.of_type(ServerType::Mongos).len() == count;
    watched.until("both mongoses", mongoses(2)).await?;
    watched.write_and_read("through a mongos").await?;
    serve.run("kill 0").await?;
    watched.write_and_read("through the other").await?;
    watched.until("one mongos", mongoses(1)).await?;
    serve.run("restart 0").await?;
    watched.until("both mongoses", mongoses(2)).await?;
    Ok(())
}

async fn standalone() -> Result<()> {
    let serve = Serve::start(&["--standalone"]).await?;
    let mut watched = Watched::connect(&serve.uri).await?;
    let alone = |view: &View| view.of_type(ServerType::Standalone).len() == 1;
    watched.until("the server", alone).await?;
    watched.write_and_read("alone").await
}

async fn load_balanced() -> Result<()> {
    let serve = Serve::start(&["--load-balanced", "2"]).await?;
    let watched = Watched::connect(&serve.uri).await?;
    watched.write_and_read("balanced").await
}

type Check = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

fn checks() -> Vec<(String, Check)> {
    let sets = ["4.4", "5.0", "6.0", "7.0", "8.0"].map(|version| {
        let check: Check = Box::pin(replica_set(version));
        (format!("replica set of {version}"), check)
    });
    let others: [(&str, Check); 6] = [
        ("split brain", Box::pin(split_brain())),
        ("role changes", Box::pin(role_changes())),
        ("fail points", Box::pin(fail_points())),
        ("sharded", Box::pin(sharded())),
        ("standalone", Box::pin(standalone())),
        ("load balanced", Box::pin(load_balanced())),
    ];
    sets.into_iter().chain(others.map(|(name, check)| (name.to_owned(), check))).collect()
}

#[tokio::main]
async fn main() -> ExitCode {
    let tasks = checks().into_iter().map(|(name, check)| {
        tokio::spawn(async move {
            let started = Instant::now();
            match check.await {
                Ok(()) => println!("ok      {name} ({:.2?})", started.elapsed()),
                Err(error) => {
                    println!("FAILED  {name}\n{error}");
                    return false;
                }
            }
            true
        })
    });
    let tasks: Vec<_> = tasks.collect();
    let (mut passed, number) = (0, tasks.len());
    for task in tasks {
        passed += usize::from(task.await.unwrap_or(false));
    }
    println!("Rust driver 3.9.1: {passed} of {number} checks passed");
    if passed == number { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
