//! Selects the primary and prints it.

use std::{env, error::Error, time::Duration};

use sdam_core::{options::Options, uri::ConnectionString};
use sdam_examples_sans_io::Client;
use sdam_select::criteria::Criteria;

fn main() -> Result<(), Box<dyn Error>> {
    let uri = env::args().nth(1).unwrap_or("mongodb://localhost".to_owned());
    let options: Options = ConnectionString::parse(&uri)?.into_options()?;
    let mut client = Client::new(&options, 1)?;
    let primary = client.select(&Criteria::write(), Duration::from_secs(30))?;
    println!("writes go to {primary}");
    Ok(())
}
