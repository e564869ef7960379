//! Compares simulated servers with real ones by sending the same requests and comparing the replies
//! field by field.
//!
//! [`differences`] lists deliberate differences with their reasons. The test fails if a difference
//! is not listed, or if a listed difference no longer exists.

#![cfg(test)]

mod cases;
mod compare;
mod conversation;
mod differences;
mod servers;
mod step_down;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use sdam_live::{Version, or_skip};

    use crate::{
        cases::{ServerKind, cases, streams},
        compare::{Aspect, compare},
        differences::DIFFERENCES,
        servers::{Servers, real, simulated},
        step_down,
    };

    /// The number of retries for a case whose timing differs.
    const ATTEMPTS: usize = 3;

    #[test]
    #[ignore = "deep: real servers"]
    fn simulated_4_2_replies_match_mongod_except_for_listed_differences() {
        compare_with(Version::V4_2);
    }

    #[test]
    #[ignore = "deep: real servers"]
    fn simulated_4_4_replies_match_mongod_except_for_listed_differences() {
        compare_with(Version::V4_4);
    }

    #[test]
    #[ignore = "deep: real servers"]
    fn simulated_5_0_replies_match_mongod_except_for_listed_differences() {
        compare_with(Version::V5_0);
    }

    #[test]
    #[ignore = "deep: real servers"]
    fn simulated_6_0_replies_match_mongod_except_for_listed_differences() {
        compare_with(Version::V6_0);
    }

    fn compare_with(version: Version) {
        let Some(real) = or_skip(real(version)).unwrap() else {
            return;
        };
        let simulated = simulated(real.version());
        let complaints = check(version, &*real, &*simulated);
        assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
    }

    /// Returns the differences that are not listed, and the listed differences that no longer
    /// exist.
    fn check(version: Version, real: &dyn Servers, simulated: &dyn Servers) -> Vec<String> {
        let mut found = Vec::new();
        for kinds in [ServerKind::Standalone, ServerKind::Primary, ServerKind::Secondary] {
            let both = [real, simulated].map(|servers| {
                let address = servers.address(kinds);
                let hello = servers.hello(address);
                let mut cases = cases(kinds, &hello);
                if hello.contains_key("topologyVersion") {
                    cases.extend(streams(&hello));
                }
                (address, cases)
            });
            let [(real, real_cases), (simulated, simulated_cases)] = both;
            assert_eq!(real_cases.len(), simulated_cases.len(), "who streams, in {version}");
            for (own, other) in real_cases.iter().zip(&simulated_cases) {
                let run = || compare(&own.run(real), &other.run(simulated));
                let mut aspects = run();
                // On a busy machine, a reply may be late by chance, but only sometimes. If the
                // server waits, its reply is late every time.
                for _ in 0..ATTEMPTS {
                    if aspects.iter().any(Aspect::is_of_time) {
                        let again = run();
                        aspects.retain(|aspect| !aspect.is_of_time() || again.contains(aspect));
                    }
                }
                found.extend(aspects.into_iter().map(|aspect| (kinds, own.name, aspect)));
            }
        }
        let ([own, other], names) = ([real, simulated].map(step_down::observe), step_down::NAMES);
        for (name, (own, other)) in names.into_iter().zip(own.iter().zip(&other)) {
            let aspects = compare(own, other);
            found.extend(aspects.into_iter().map(|aspect| (ServerKind::Primary, name, aspect)));
        }
        verdict(version, &found)
    }

    fn verdict(version: Version, found: &[(ServerKind, &str, Aspect)]) -> Vec<String> {
        let listed = DIFFERENCES.iter().filter(|own| own.applies_to(version));
        let listed: Vec<_> = listed.collect();
        let mut used = BTreeSet::new();
        let mut complaints = Vec::new();
        for (kinds, case, aspect) in found {
            let is_it = |index: &usize| listed[*index].explains(*kinds, case, aspect);
            let explained: Vec<usize> = (0..listed.len()).filter(is_it).collect();
            if explained.is_empty() {
                complaints.push(format!(
                    "{version} {kinds:?} [{case}] {}: real {:?}, simulated {:?}",
                    aspect.path, aspect.real, aspect.simulated
                ));
            }
            used.extend(explained);
        }
        let stale = (0..listed.len()).filter(|index| !used.contains(index));
        complaints.extend(stale.map(|index| {
            format!("{version}: this listed difference does not exist: {:?}", listed[index])
        }));
        complaints
    }
}
