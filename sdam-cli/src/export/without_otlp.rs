//! A substitute for the module that pushes to an OpenTelemetry collector, used if the feature
//! `otlp` is disabled.

use std::{
    collections::BTreeMap, convert::Infallible, fmt::Display, future::Ready, sync::Arc,
    time::Duration,
};

use sdam::Backend;
use sdam_events::sink::EventSink;

use crate::page::Page;

/// The connection to a collector, which cannot exist in this build.
pub(super) struct Push(Infallible);

impl Push {
    /// Returns an error if the option `--otlp` was given. Ignores the variables, because they may
    /// be meant for other programs.
    pub(super) fn new(
        option: Option<&str>,
        _: &BTreeMap<String, String>,
    ) -> Result<Option<Self>, String> {
        if option.is_none() {
            return Ok(None);
        }
        let remedy = "cargo install sdam-cli --features otlp";
        Err(format!(
            "--otlp: this program was built without the feature otlp; install it with: {remedy}"
        ))
    }

    pub(super) fn sink(&self, _: &[(&str, String)], _: &Backend) -> Arc<dyn EventSink> {
        match self.0 {}
    }

    pub(super) fn run(&self, _: impl Fn() -> Page, _: impl Fn(&dyn Display)) -> Ready<()> {
        match self.0 {}
    }

    pub(super) fn flush(&self, _: Duration, _: &Page, _: impl Fn(&dyn Display)) -> Ready<()> {
        match self.0 {}
    }
}
