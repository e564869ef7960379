//! The complete string form of criteria, for logs.

use core::fmt;

use sdam_core::{Joined, read_preference::ReadPreference};

use super::{Criteria, Operation};
use crate::settings::Settings;

/// Displays all suitability criteria, for the field `selector` in logs (Server Selection:
/// "Logging", K-7).
///
/// When [`Criteria`] itself is displayed, the parts that restrict nothing are omitted. This type
/// displays every part of the read preference that is set, and the presence of application
/// selectors.
#[derive(Debug)]
pub struct SelectorText<'a> {
    criteria: &'a Criteria,
    settings: &'a Settings,
}

impl Criteria {
    /// Returns the complete string form of the criteria for a client with these settings.
    pub fn selector_text<'a>(&'a self, settings: &'a Settings) -> SelectorText<'a> {
        SelectorText { criteria: self, settings }
    }
}

impl fmt::Display for SelectorText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { criteria, settings } = self;
        match &criteria.operation {
            Operation::Read(preference) => fmt_preference(f, preference)?,
            Operation::Write => f.write_str("write operation")?,
        }
        if criteria.fallback.is_some() {
            f.write_str(", with a write stage")?;
        }
        if !criteria.deprioritized().is_empty() {
            let addresses = Joined(criteria.deprioritized(), ", ");
            write!(f, ", deprioritized servers [{addresses}]")?;
        }
        if settings.selector.is_some() {
            f.write_str(", custom selector of the client")?;
        }
        if criteria.selector.is_some() {
            f.write_str(", custom selector of the operation")?;
        }
        Ok(())
    }
}

/// Formats the parts with the same names and in the same order as in a command's `$readPreference`.
fn fmt_preference(f: &mut fmt::Formatter<'_>, preference: &ReadPreference) -> fmt::Result {
    write!(f, "read preference {{ mode: {}", preference.mode)?;
    if !preference.tag_sets.is_empty() {
        write!(f, ", tags: [{}]", Joined(&preference.tag_sets, ", "))?;
    }
    if let Some(limit) = preference.max_staleness {
        write!(f, ", maxStalenessSeconds: {}", limit.as_secs_f64())?;
    }
    if let Some(enabled) = preference.hedge {
        write!(f, ", hedge: {{ enabled: {enabled} }}")?;
    }
    f.write_str(" }")
}
