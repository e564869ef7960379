//! Connects to a deployment once, using the TLS, proxy and DNS settings of its connection string,
//! or explains why it cannot.
//!
//! `cargo run -p sdam-examples --example connect -- URI`

use std::{env, error::Error, iter, net::SocketAddr, process::ExitCode, sync::Arc};

use bson::rawdoc;
use sdam::{
    ServerAddress, TopologyBuilder,
    client::Command,
    dns::DnsResolver,
    runtime::{self, Translate},
};

const USAGE: &str = "\
usage: cargo run -p sdam-examples --example connect -- [OPTIONS] URI

  --dns IP:PORT      the DNS server that knows the seed list
  --loopback DOMAIN  connect to this machine instead of hosts of the domain";

fn main() -> ExitCode {
    match run(env::args().skip(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let causes = iter::successors(error.source(), |&cause| cause.source());
            eprint!("{error}");
            causes.for_each(|cause| eprint!(": {cause}"));
            eprintln!();
            ExitCode::FAILURE
        }
    }
}

fn run(mut arguments: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    let (mut dns, mut loopback, mut uri) = (None, None, None);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--dns" => dns = arguments.next().map(|dns| dns.parse()).transpose()?,
            "--loopback" => loopback = arguments.next(),
            _ => uri = Some(argument),
        }
    }
    let uri = uri.ok_or(USAGE)?;
    let tokio = tokio::runtime::Runtime::new()?;
    tokio.block_on(ping(&uri, dns, loopback))
}

async fn ping(
    uri: &str,
    dns: Option<SocketAddr>,
    loopback: Option<String>,
) -> Result<(), Box<dyn Error>> {
    let mut runtime = runtime::tokio()?;
    if let Some(server) = dns {
        let resolver = DnsResolver::with_servers([server]);
        runtime.backend.resolver = Some(Arc::new(resolver));
    }
    let options = sdam::resolve(uri, &runtime.backend).await?;
    let mut topology = TopologyBuilder::new(options);
    if let Some(domain) = loopback {
        topology = topology.translate(Loopback(domain));
    }
    let client = topology.client(runtime)?;
    let ping = rawdoc! { "ping": 1 };
    client.run(&Command::read("admin", ping.as_bytes())).await?;
    client.close().await;
    Ok(())
}

/// Translates the addresses of all hosts in one domain to the loopback address.
#[derive(Debug)]
struct Loopback(String);

impl Translate for Loopback {
    fn translate(&self, member: &ServerAddress) -> ServerAddress {
        match member.port() {
            Some(port) if member.host().ends_with(&self.0) => ServerAddress::new("127.0.0.1", port),
            _ => member.clone(),
        }
    }
}
