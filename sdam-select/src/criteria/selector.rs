//! The complete text of criteria, for logs.

use core::fmt;

use sdam_core::read_preference::ReadPreference;

use super::{Criteria, Operation};
use crate::settings::Settings;

/// The complete text of all suitability criteria, as `selector` in logs (Server Selection:
/// "Logging", K-7).
///
/// The text of a [`Criteria`] omits parts that restrict nothing. This text contains every part of
/// the read preference that is set, and the presence of application selectors.
#[derive(Debug)]
pub struct SelectorText<'a> {
    criteria: &'a Criteria,
    settings: &'a Settings,
}

impl Criteria {
    /// Returns the complete text of the criteria for a client with these settings.
    pub fn selector_text<'a>(&'a self, settings: &'a Settings) -> SelectorText<'a> {
        SelectorText {
            criteria: self,
            settings,
        }
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
            f.write_str(", deprioritized servers ")?;
            fmt_list(f, criteria.deprioritized())?;
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

/// Formats the parts with the names and in the order of a command's `$readPreference`.
fn fmt_preference(f: &mut fmt::Formatter<'_>, preference: &ReadPreference) -> fmt::Result {
    write!(f, "read preference {{ mode: {}", preference.mode)?;
    if !preference.tag_sets.is_empty() {
        f.write_str(", tags: ")?;
        fmt_list(f, &preference.tag_sets)?;
    }
    if let Some(limit) = preference.max_staleness {
        write!(f, ", maxStalenessSeconds: {}", limit.as_secs_f64())?;
    }
    if let Some(enabled) = preference.hedge {
        write!(f, ", hedge: {{ enabled: {enabled} }}")?;
    }
    f.write_str(" }")
}

fn fmt_list(f: &mut fmt::Formatter<'_>, items: &[impl fmt::Display]) -> fmt::Result {
    for (index, item) in items.iter().enumerate() {
        let separator = if index > 0 { ", " } else { "[" };
        write!(f, "{separator}{item}")?;
    }
    f.write_str("]")
}

#[cfg(test)]
mod tests {
    use alloc::{string::ToString, sync::Arc};
    use core::time::Duration;

    use sdam_core::read_preference::{ReadMode, TagSet};

    use super::*;
    use crate::{
        candidate::Candidates,
        testing::{address, tags},
    };

    #[test]
    #[expect(deprecated, reason = "servers before 8.0 still take it")]
    fn selector_text_has_every_part_of_the_read_preference_and_custom_selectors() {
        // K-7
        let plain = Settings::default();
        let check = |criteria: &Criteria, settings: &Settings, text: &str| {
            assert_eq!(criteria.selector_text(settings).to_string(), text);
        };
        check(&Criteria::write(), &plain, "write operation");
        let secondary = || ReadPreference::new(ReadMode::Secondary);
        let read = |preference| Criteria::read(preference).unwrap();
        let mode_only = "read preference { mode: secondary }";
        check(&read(secondary()), &plain, mode_only);
        let every_part = secondary()
            .with_tag_sets([TagSet::default(), tags(&[("dc", "ny"), ("rack", "1")])].into())
            .with_max_staleness(Duration::from_secs(120))
            .with_hedge(false);
        check(
            &read(every_part),
            &plain,
            "read preference { mode: secondary, tags: [{}, {dc: ny, rack: 1}], \
             maxStalenessSeconds: 120, hedge: { enabled: false } }",
        );
        let any = || Arc::new(|_: &mut Candidates<'_>| {});
        let custom = plain.clone().with_selector(any());
        check(
            &Criteria::write(),
            &custom,
            "write operation, custom selector of the client",
        );
        let retry = read(secondary())
            .with_write_stage()
            .with_deprioritized([address(2), address(1)])
            .with_selector(any());
        check(
            &retry,
            &custom,
            "read preference { mode: secondary }, with a write stage, deprioritized servers \
             [s01:27017, s02:27017], custom selector of the client, custom selector of the \
             operation",
        );
    }
}
