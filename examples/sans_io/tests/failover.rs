//! Runs the client with a simulated replica set on loopback sockets.

use std::{error::Error, time::Duration};

use sdam_core::uri::ConnectionString;
use sdam_examples_sans_io::Client;
use sdam_select::criteria::Criteria;
use sdam_sim::serve::ReplicaSet;

const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn writes_go_to_the_new_primary_after_a_failover() -> Result<(), Box<dyn Error>> {
    let set = ReplicaSet::start(3)?;
    let options = ConnectionString::parse(set.uri())?.into_options()?;
    let mut client = Client::new(&options, 1)?;
    let first = client.select(&Criteria::write(), LIMIT)?;
    set.kill(set.primary()?.ok_or("there is no primary")?)?;
    // The test reports no error to the client. The client itself notices that the connection on
    // which it checks the server has been closed.
    loop {
        let primary = client.select(&Criteria::write(), LIMIT)?;
        if primary.address != first.address {
            break;
        }
    }
    Ok(())
}
