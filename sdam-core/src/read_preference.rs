//! Read preferences: the members from which an operation may read.

use alloc::{
    boxed::Box,
    collections::BTreeMap,
    format,
    string::{String, ToString as _},
    vec::Vec,
};
use core::{fmt, time::Duration};

use crate::{options::ConfigError, text::Joined};

/// The members of a replica set from which an operation may read (Server Selection: "Read
/// preference").
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadPreference {
    /// The roles to read from, with their order of preference.
    pub mode: ReadMode,
    /// The tag sets in order of preference: the first one that matches any server is used. If there
    /// are no tag sets, every server matches.
    pub tag_sets: Vec<TagSet>,
    /// The maximum staleness of a secondary; `None` for no limit (`-1` in a connection string).
    #[doc(alias = "maxStalenessSeconds")]
    pub max_staleness: Option<Duration>,
    /// True if a mongos may send a read to two members at once. Deprecated since MongoDB 8.0.
    pub hedge: Option<bool>,
}

impl ReadPreference {
    /// Creates the preference with this mode, without tags or limits.
    pub const fn new(mode: ReadMode) -> Self {
        Self { mode, tag_sets: Vec::new(), max_staleness: None, hedge: None }
    }

    /// Sets the tag sets, in order of preference.
    #[must_use]
    pub fn with_tag_sets(mut self, tag_sets: Vec<TagSet>) -> Self {
        self.tag_sets = tag_sets;
        self
    }

    /// Sets the staleness limit.
    #[must_use]
    pub fn with_max_staleness(mut self, max_staleness: Duration) -> Self {
        self.max_staleness = Some(max_staleness);
        self
    }

    /// Enables or disables hedged reads (L-77).
    #[deprecated = "MongoDB 8.0 deprecates hedged reads: leave it out"]
    #[must_use]
    pub fn with_hedge(mut self, enabled: bool) -> Self {
        self.hedge = Some(enabled);
        self
    }

    /// Checks whether the parts of the preference can be combined, independently of the topology
    /// (Server Selection: "Read preference"; Max Staleness: "Validation of maxStalenessSeconds").
    ///
    /// The minimum of the staleness limit depends on the topology and on the client's heartbeat
    /// frequency, and is checked when a server is selected.
    ///
    /// # Errors
    ///
    /// If mode primary has tags, a staleness limit or hedged reads, if the limit is not a whole
    /// number of seconds, or if the name of a tag contains a zero byte.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let refuse = |option, value: String, reason: String, remedy| {
            Err(ConfigError::new(option, value, reason, remedy))
        };
        let limit = self.max_staleness.unwrap_or_default();
        if self.mode == ReadMode::Primary {
            let without = |option, value, thing| {
                let reason = format!("mode primary has no {thing}");
                let remedy = "choose another `readPreference`, such as primaryPreferred, or leave \
                              it out";
                refuse(option, value, reason, remedy)
            };
            if !limit.is_zero() {
                let limit = limit.as_secs_f64().to_string();
                return without("maxStalenessSeconds", limit, "limit on staleness");
            }
            if let Some(tags) = self.tag_sets.iter().find(|tags| !tags.is_empty()) {
                return without("readPreferenceTags", tags.to_string(), "tags");
            }
            if let Some(hedge) = self.hedge {
                return without("hedge", hedge.to_string(), "hedged reads");
            }
        }
        let mut tags = self.tag_sets.iter().flat_map(TagSet::iter);
        if let Some((name, _)) = tags.find(|(name, _)| name.contains('\0')) {
            let (name, reason) = (name.escape_debug().to_string(), "no tag has a zero byte");
            return refuse("readPreferenceTags", name, reason.into(), "remove the byte");
        }
        if limit.subsec_nanos() != 0 {
            let (limit, reason) = (limit.as_secs_f64().to_string(), "servers count in seconds");
            return refuse("maxStalenessSeconds", limit, reason.into(), "round it up");
        }
        Ok(())
    }

    /// Returns whether the tag sets match every server, because there are none or the first one is
    /// empty.
    pub fn matches_any_tags(&self) -> bool {
        self.tag_sets.first().is_none_or(TagSet::is_empty)
    }
}

impl fmt::Display for ReadPreference {
    /// Formats the preference for selection errors: the mode, then the tag sets and the staleness
    /// limit if they restrict anything (Server Selection: "Server Selection Errors").
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.mode)?;
        let tagged = !self.matches_any_tags();
        let limit = self.max_staleness.map(|limit| limit.as_secs_f64());
        if tagged {
            f.write_str(if limit.is_some() { "," } else { " and" })?;
            write!(f, " tag set list [{}]", Joined(&self.tag_sets, ", "))?;
        }
        if let Some(limit) = limit {
            let comma = if tagged { "," } else { "" };
            write!(f, "{comma} and `maxStalenessSeconds` {limit}")?;
        }
        Ok(())
    }
}

/// The mode of a read preference.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    strum::Display,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(serialize_all = "camelCase")]
pub enum ReadMode {
    /// Only the primary.
    #[default]
    Primary,
    /// The primary if there is one, else an eligible secondary.
    PrimaryPreferred,
    /// Only eligible secondaries.
    Secondary,
    /// Eligible secondaries if there are any, else the primary.
    SecondaryPreferred,
    /// The primary and the eligible secondaries, without preferring either.
    Nearest,
}

impl ReadMode {
    /// Every value, in declaration order.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the name, for logs, records and counters.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl ReadMode {
    /// Parses the name of a mode as it appears in commands, ignoring case.
    pub fn parse(name: &str) -> Option<Self> {
        let mut modes = Self::ALL.iter().copied();
        modes.find(|mode| mode.as_str().eq_ignore_ascii_case(name))
    }
}

/// A set of tags: unique names with one value each, sorted by name.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct TagSet(Box<[(Box<str>, Box<str>)]>);

impl TagSet {
    /// Returns whether the set is empty; the empty set matches every server.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the value of the tag `name`.
    pub fn value(&self, name: &str) -> Option<&str> {
        // Sets are small: a linear search that compares lengths first is faster than a binary
        // search.
        let mut tags = self.0.iter();
        let (_, value) = tags.find(|(own, _)| **own == *name)?;
        Some(value)
    }

    /// Iterates over names and values, sorted by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> + Clone {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Returns whether every tag of this set is among `tags` with the same value.
    pub fn is_subset_of(&self, tags: &Self) -> bool {
        self.iter().all(|(name, value)| tags.value(name) == Some(value))
    }
}

impl<N: Into<Box<str>>, V: Into<Box<str>>> FromIterator<(N, V)> for TagSet {
    /// Builds a tag set; if a name is repeated, its last value is used.
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let pairs = pairs.into_iter().map(|(name, value)| (name.into(), value.into()));
        Self(pairs.collect::<BTreeMap<_, _>>().into_iter().collect())
    }
}

impl fmt::Display for TagSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tags = self.iter().map(|(name, value)| format!("{name}: {value}"));
        f.pad(&format!("{{{}}}", Joined(tags, ", ")))
    }
}

impl fmt::Debug for TagSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_set_matches_servers_that_have_all_its_tags() {
        // The empty tag set matches every server (L-15).
        let server: TagSet = [("dc", "ny"), ("rack", "1")].into_iter().collect();
        let check = |tags: &[(&str, &str)], expected| {
            let wanted: TagSet = tags.iter().copied().collect();
            assert_eq!(wanted.is_subset_of(&server), expected, "{wanted}");
        };
        check(&[], true);
        check(&[("dc", "ny")], true);
        check(&[("rack", "1"), ("dc", "ny")], true);
        check(&[("dc", "la")], false);
        check(&[("disk", "ssd")], false);
        assert_eq!(server.to_string(), "{dc: ny, rack: 1}");
    }

    #[test]
    fn the_last_value_of_a_repeated_tag_is_used() {
        let tags: TagSet = [("a", "1"), ("a", "2")].into_iter().collect();
        assert_eq!(tags.value("a"), Some("2"));
        assert_eq!(tags.iter().len(), 1);
    }

    #[test]
    #[expect(deprecated, reason = "servers before 8.0 still accept it")]
    fn mode_primary_refuses_tags_max_staleness_and_hedging() {
        // A list with only the empty tag set is allowed (B-26, B-27, L-17, L-20, L-71).
        let tags: TagSet = [("dc", "ny")].into_iter().collect();
        let limit = Duration::from_secs(120);
        let check = |build: &dyn Fn(ReadPreference) -> ReadPreference, expected: &[&str]| {
            let primary = build(ReadPreference::new(ReadMode::Primary));
            let error = primary.validate().err();
            let refused = error.iter().flat_map(|error| [error.option(), error.value()]);
            assert_eq!(refused.collect::<Vec<_>>(), expected, "{primary:?}");
            let nearest = build(ReadPreference::new(ReadMode::Nearest));
            assert_eq!(nearest.validate(), Ok(()), "{nearest:?}");
        };
        check(&|it| it, &[]);
        check(&|it| it.with_tag_sets([TagSet::default()].into()), &[]);
        check(
            &|it| it.with_tag_sets([TagSet::default(), tags.clone()].into()),
            &["readPreferenceTags", "{dc: ny}"],
        );
        check(&|it| it.with_max_staleness(limit), &["maxStalenessSeconds", "120"]);
        // Limits that are too small are rejected by selection, which knows the heartbeat frequency.
        check(&|it| it.with_max_staleness(Duration::ZERO), &[]);
        check(&|it| it.with_hedge(true), &["hedge", "true"]);
    }

    #[test]
    fn fractional_max_staleness_and_tag_names_with_nul_are_refused() {
        // Only a valid read preference may be sent to a server (L-71).
        let limit = Duration::from_millis(90_500);
        let nearest = ReadPreference::new(ReadMode::Nearest);
        let tags: TagSet = [("d\0c", "ny")].into_iter().collect();
        let check = |preference: ReadPreference, text: &str| {
            assert_eq!(preference.validate().unwrap_err().to_string(), text);
        };
        let text = "`maxStalenessSeconds` is `90.5`: servers count in seconds; round it up";
        check(nearest.clone().with_max_staleness(limit), text);
        let text = "`readPreferenceTags` is `d\\0c`: no tag has a zero byte; remove the byte";
        check(nearest.with_tag_sets([tags].into()), text);
    }

    #[test]
    fn display_omits_parts_that_restrict_nothing() {
        // Selection errors name the mode, the tags and the limit (L-80).
        let check = |preference: ReadPreference, text| assert_eq!(preference.to_string(), text);
        let secondary = ReadPreference::new(ReadMode::Secondary);
        let tags = || [[("dc", "ny")].into_iter().collect(), TagSet::default()].into();
        let limit = Duration::from_secs(120);
        check(secondary.clone(), "secondary");
        check(secondary.clone().with_tag_sets([TagSet::default()].into()), "secondary");
        check(secondary.clone().with_tag_sets(tags()), "secondary and tag set list [{dc: ny}, {}]");
        let text = "secondary and `maxStalenessSeconds` 120";
        check(secondary.clone().with_max_staleness(limit), text);
        check(
            secondary.with_tag_sets(tags()).with_max_staleness(limit),
            "secondary, tag set list [{dc: ny}, {}], and `maxStalenessSeconds` 120",
        );
    }
}
