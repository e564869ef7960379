//! Selects the primary and prints it, with the state machine on plain sockets and `poll(2)`: no
//! runtime, no engine. Of this project's crates, it uses only `sdam-core` and `sdam-select`.
//!
//! `cargo run -p sdam-examples --example sans_io [URI]`

mod client;
mod link;

use std::{env, error::Error, time::Duration};

use sdam_core::{options::Options, uri::ConnectionString};
use sdam_select::criteria::Criteria;

use self::client::Client;

fn main() -> Result<(), Box<dyn Error>> {
    let uri = env::args().nth(1).unwrap_or("mongodb://localhost".to_owned());
    let options: Options = ConnectionString::parse(&uri)?.into_options()?;
    let mut client = Client::new(&options, 1)?;
    let primary = client.select(&Criteria::write(), Duration::from_secs(30))?;
    println!("writes go to {primary}");
    Ok(())
}

#[test]
fn writes_go_to_the_new_primary_after_a_failover() -> Result<(), Box<dyn Error>> {
    let limit = Duration::from_secs(30);
    let set = sdam::sim::Blueprint::replica_set(3).serve()?;
    let options = ConnectionString::parse(set.uri())?.into_options()?;
    let mut client = Client::new(&options, 1)?;
    let first = client.select(&Criteria::write(), limit)?;
    set.kill(set.primary()?.ok_or("there is no primary")?)?;
    // The test reports no error to the client. The client itself notices that the connection on
    // which it checks the server has been closed.
    while client.select(&Criteria::write(), limit)?.address == first.address {}
    Ok(())
}
