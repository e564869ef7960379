//! The changes to the criteria or settings that would make each rejected server eligible.

use std::time::Duration;

use sdam_core::{
    address::ServerAddress,
    read_preference::{ReadMode, ReadPreference, TagSet},
    server::ServerType,
    topology::TopologyDescription,
};
use sdam_select::{
    criteria::Criteria,
    explain::{Rejection, Verdict, explain},
    settings::Settings,
};

/// The maximum number of steps. Each step changes the mode, staleness, tags or latency, except for
/// the last step, which only checks the result.
const STEPS: usize = 5;

/// Returns the change that would make each available but rejected server eligible, if one exists.
pub(super) fn changes(
    topology: &TopologyDescription,
    settings: &Settings,
    criteria: &Criteria,
) -> Vec<(ServerAddress, String)> {
    let explanation = explain(topology, settings, criteria);
    let rejected = explanation.servers.iter().filter(|server| {
        server.server_type.is_available() && matches!(server.verdict, Verdict::Rejected(_))
    });
    rejected
        .filter_map(|server| {
            let change = match explanation.operation.read_preference() {
                Some(preference) => {
                    let draft = Draft::new(ReadPreference::clone(preference), settings);
                    draft.for_server(topology, &server.address)?
                }
                None if server.server_type == ServerType::RsSecondary => {
                    "writes need it to be elected (rs.stepDown() at the primary)".to_owned()
                }
                None => return None,
            };
            Some((server.address.clone(), change))
        })
        .collect()
}

/// Criteria and settings that are changed step by step.
struct Draft {
    preference: ReadPreference,
    settings: Settings,
    words: Vec<String>,
}

impl Draft {
    fn new(preference: ReadPreference, settings: &Settings) -> Self {
        Self { preference, settings: settings.clone(), words: Vec::new() }
    }

    /// Changes the criteria and settings until `server` is eligible, and describes the changes.
    /// Returns `None` if no change makes the server eligible.
    fn for_server(
        mut self,
        topology: &TopologyDescription,
        server: &ServerAddress,
    ) -> Option<String> {
        for _ in 0..STEPS {
            let criteria = Criteria::read(self.preference.clone()).ok()?;
            let explanation = explain(topology, &self.settings, &criteria);
            let mut servers = explanation.servers.iter();
            let own = servers.find(|own| own.address == *server)?;
            match &own.verdict {
                Verdict::Eligible { .. } => return Some(self.words.join(", and ")),
                Verdict::Rejected(rejection) => self.relax(rejection)?,
                _ => return None,
            }
        }
        None
    }

    /// Changes the criterion or setting that caused `rejection`. Returns `None` if there is nothing
    /// left to change.
    fn relax(&mut self, rejection: &Rejection) -> Option<()> {
        let words = match rejection {
            Rejection::Type { .. } | Rejection::NotPreferred { .. } => {
                // `Nearest` is the mode that accepts the most servers.
                if self.preference.mode == ReadMode::Nearest {
                    return None;
                }
                self.preference.mode = ReadMode::Nearest;
                "--read nearest".to_owned()
            }
            Rejection::Stale { staleness, .. } => {
                let limit = Duration::from_secs(staleness.as_secs() + 1);
                self.preference.max_staleness = Some(limit);
                format!("--max-staleness {}", limit.as_secs())
            }
            Rejection::StalenessUnknown { .. } => {
                self.preference.max_staleness = None;
                "no --max-staleness".to_owned()
            }
            Rejection::Tags { own, .. } => {
                let tags = self.similar(own);
                let words = format!("--tags {}", written(&tags));
                self.preference.tag_sets = vec![tags];
                words
            }
            Rejection::Latency { average: Some(average), fastest, .. } => {
                let needed = average.saturating_sub(*fastest).as_millis() + 1;
                let needed = u64::try_from(needed).ok()?;
                self.settings.local_threshold = Duration::from_millis(needed);
                format!("localThresholdMS={needed}")
            }
            _ => return None,
        };
        self.words.push(words);
        Some(())
    }

    /// Returns the server's tags whose names appear in the criteria.
    fn similar(&self, own: &TagSet) -> TagSet {
        let wanted = self.preference.tag_sets.iter().flat_map(TagSet::iter);
        let names: Vec<_> = wanted.map(|(name, _)| name).collect();
        own.iter().filter(|(name, _)| names.contains(name)).collect()
    }
}

/// Formats tags in the syntax of the command line.
fn written(tags: &TagSet) -> String {
    if tags.is_empty() {
        return "''".to_owned();
    }
    let tags = tags.iter().map(|(name, value)| format!("{name}:{value}"));
    tags.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use sdam_core::{
        ids::ServerId,
        server::{Rtt, ServerDescription, WireVersions},
        topology::TopologyType,
    };

    use super::*;

    fn member(number: u64, kind: ServerType, rtt: u64) -> ServerDescription {
        let address = ServerAddress::new(&format!("m{number}"), 1);
        let mut member = ServerDescription::unknown(ServerId::from_u64(number), address);
        member.server_type = kind;
        member.wire_versions = WireVersions { min: 0, max: 21 };
        let rtt = Duration::from_millis(rtt);
        member.rtt = Some(Rtt { average: rtt, minimum: rtt, p90: rtt });
        member
    }

    fn check(preference: ReadPreference, expected: &[(&str, &str)]) {
        let servers = [
            member(1, ServerType::RsPrimary, 2),
            member(2, ServerType::RsSecondary, 2),
            member(3, ServerType::RsSecondary, 40),
            member(4, ServerType::RsArbiter, 2),
        ];
        let topology = TopologyDescription::new(TopologyType::ReplicaSetWithPrimary, servers);
        let criteria = Criteria::read(preference).unwrap();
        let found = changes(&topology, &Settings::default(), &criteria);
        let found: Vec<_> =
            found.iter().map(|(address, change)| (address.host(), &**change)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn several_changes_are_combined_and_arbiters_are_left_out() {
        let secondary = ReadPreference::new(ReadMode::Secondary);
        let expected = [("m1", "--read nearest"), ("m3", "localThresholdMS=39")];
        check(secondary, &expected);
        let expected =
            [("m2", "--read nearest"), ("m3", "--read nearest, and localThresholdMS=39")];
        check(ReadPreference::new(ReadMode::Primary), &expected);
        let tagged = [("dc", "ny")].into_iter().collect();
        let tagged = ReadPreference::new(ReadMode::Nearest).with_tag_sets(vec![tagged]);
        let expected = [
            ("m1", "--tags ''"),
            ("m2", "--tags ''"),
            ("m3", "--tags '', and localThresholdMS=39"),
        ];
        check(tagged, &expected);
    }
}
