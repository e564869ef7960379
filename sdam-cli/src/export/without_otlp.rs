//! The push to a collector of OpenTelemetry, without the feature `otlp`: there is none.

use std::{
    collections::BTreeMap, convert::Infallible, fmt::Display, future::Ready, sync::Arc,
    time::Duration,
};

use sdam::Io;
use sdam_events::sink::EventSink;

/// A push that cannot exist.
pub(super) struct Push(Infallible);

/// Refuses the option `--otlp`.
pub(super) fn url(_: &str) -> Result<Infallible, String> {
    let remedy = "cargo install sdam-cli --features otlp";
    Err(format!(
        "this program was built without the feature otlp; install it with: {remedy}"
    ))
}

impl Push {
    /// Returns `None`: variables alone are not meant for this program.
    pub(super) fn new(
        option: Option<&str>,
        _: &BTreeMap<String, String>,
    ) -> Result<Option<Self>, String> {
        option.map_or(Ok(None), |text| url(text).map(|never| Some(Self(never))))
    }

    pub(super) fn sink(&self, _: Option<&str>, _: &Io) -> Arc<dyn EventSink> {
        match self.0 {}
    }

    pub(super) fn run(&self, _: impl Fn() -> String, _: impl Fn(&dyn Display)) -> Ready<()> {
        match self.0 {}
    }

    pub(super) fn flush(&self, _: Duration, _: &str, _: impl Fn(&dyn Display)) -> Ready<()> {
        match self.0 {}
    }
}
