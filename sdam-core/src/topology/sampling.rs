//! Chooses among the hosts of an SRV record.

use alloc::{collections::BTreeSet, vec::Vec};

use super::TopologyDescription;
use crate::{address::ServerAddress, rng::Rng};

impl TopologyDescription {
    /// Returns the hosts of an SRV record that the topology should contain, without duplicates. If
    /// `max_hosts` is 0 or not less than the number of hosts, it returns all of them. Otherwise, it
    /// returns the hosts that the topology already contains, and random others up to a total of
    /// `max_hosts` (Polling SRV Records for mongos Discovery: "srvMaxHosts").
    #[doc(alias = "srvMaxHosts")]
    pub(crate) fn sample_hosts(
        &self,
        hosts: &[ServerAddress],
        max_hosts: usize,
        rng: &mut Rng,
    ) -> Vec<ServerAddress> {
        let distinct: BTreeSet<_> = hosts.iter().cloned().collect();
        if max_hosts == 0 || distinct.len() <= max_hosts {
            return distinct.into_iter().collect();
        }
        let is_known = |host: &ServerAddress| self.server(host).is_some();
        let (mut sample, mut new): (Vec<_>, Vec<_>) = distinct.into_iter().partition(is_known);
        rng.shuffle(&mut new);
        new.truncate(max_hosts.saturating_sub(sample.len()));
        sample.append(&mut new);
        sample
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ids::ServerId, server::ServerDescription, topology_type::TopologyType};

    fn addresses(names: &str) -> Vec<ServerAddress> {
        let of = |name| ServerAddress::new(name, 27017);
        names.split_whitespace().map(of).collect()
    }

    fn sample(known: &str, hosts: &str, max_hosts: usize, seed: u64) -> Vec<ServerAddress> {
        let server = |address| ServerDescription::unknown(ServerId::from_u64(1), address);
        let servers = addresses(known).into_iter().map(server);
        let topology = TopologyDescription::new(TopologyType::Sharded, servers);
        topology.sample_hosts(&addresses(hosts), max_hosts, &mut Rng::new(seed))
    }

    #[test]
    fn all_distinct_hosts_are_taken_if_the_limit_allows_them() {
        // A limit of 0 means all hosts (N-25).
        for max_hosts in [0, 3, 4] {
            assert_eq!(sample("a x", "b a c b", max_hosts, 1), addresses("a b c"));
        }
    }

    #[test]
    fn hosts_that_the_topology_has_stay_and_random_others_fill_the_limit() {
        // The limit applies only to added hosts (N-25).
        let mut seen = BTreeSet::new();
        for seed in 0..100 {
            let chosen = sample("a b x", "a b c d e", 3, seed);
            assert_eq!(chosen[..2], addresses("a b"), "the known hosts");
            assert_eq!(chosen.len(), 3);
            seen.extend(chosen);
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), addresses("a b c d e"));
        assert_eq!(sample("a b", "a b c", 1, 1), addresses("a b"), "none is removed");
    }
}
