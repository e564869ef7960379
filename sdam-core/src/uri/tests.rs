use alloc::{
    format,
    string::{String, ToString},
    vec,
    vec::Vec,
};

use super::*;
use crate::{rng::Rng, topology::TopologyType};

mod guards;
mod options;
mod syntax;

fn parse(text: &str) -> ConnectionString {
    match ConnectionString::parse(text) {
        Ok(string) => string,
        Err(error) => panic!("{text}: {error}"),
    }
}

/// Resolves an SRV string without look-ups, with one host and these TXT records.
fn resolved(string: ConnectionString, txt: &[&str]) -> Result<ConnectionString, ConfigError> {
    let hosts = vec![ServerAddress::new("a.example.com", 1)];
    let records = SrvRecords::new(hosts, Duration::ZERO);
    let txt: Vec<Box<str>> = txt.iter().map(|record| (*record).into()).collect();
    string.resolved(&records, &txt, &mut Rng::new(1))
}

/// Returns the names of the options in the warnings.
fn warned(string: &ConnectionString) -> Vec<&str> {
    string.warnings().iter().map(Warning::option).collect()
}

/// Asserts that `text` is rejected because of `option`.
#[track_caller]
fn check_refused(text: &str, option: &str) {
    let error = ConnectionString::parse(text).expect_err(text);
    assert_eq!(error.option(), option, "{text}: {error}");
    assert!(error.to_string().contains(option), "{error}");
    assert!(!error.reason().is_empty() && !error.remedy().is_empty());
}
