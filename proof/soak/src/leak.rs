//! The rules by which counters show a leak.

use std::fmt;

/// The growth of memory that counts as noise: a part of it, and KiB.
const NOISE: (f64, f64) = (0.05, 2048.0);

/// The counters of the process at a moment at which all traffic is paused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// The open descriptors, except the sockets of idle pooled connections.
    pub(crate) descriptors: usize,
    pub(crate) threads: usize,
    /// The tasks that clients have spawned and that have not ended.
    pub(crate) tasks: usize,
}

impl Counters {
    /// Returns whether none of these counters exceeds those of an earlier moment.
    pub(crate) fn is_within(&self, earlier: &Self) -> bool {
        self.descriptors <= earlier.descriptors
            && self.threads <= earlier.threads
            && self.tasks <= earlier.tasks
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { descriptors, threads, tasks } = self;
        write!(f, "{descriptors} descriptors, {threads} threads, {tasks} tasks")
    }
}

/// Returns the medians of the second and the last third of the samples, in KiB, if memory grows
/// from one to the other by more than noise. The first third is the warm-up.
pub(crate) fn grows(samples: &[u64]) -> Option<(u64, u64)> {
    let third = samples.len() / 3;
    let (rest, last) = samples.split_at(samples.len() - third);
    let (_, second) = rest.split_at(rest.len() - third);
    let (second, last) = (median(second)?, median(last)?);
    let limit = second as f64 * (1.0 + NOISE.0) + NOISE.1;
    (last as f64 > limit).then_some((second, last))
}

/// Returns the median; of an even number of samples, the lower one of the middle.
fn median(samples: &[u64]) -> Option<u64> {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The memory at 18 rest points, in KiB, that grows by `each` at every one.
    fn ramp(each: u64) -> Vec<u64> {
        (0..18).map(|point| 40_000 + point * each).collect()
    }

    #[test]
    fn memory_grows_if_the_last_third_exceeds_the_second_by_more_than_noise() {
        // The medians are those of the points 8 and 14.
        assert_eq!(grows(&ramp(720)), None);
        assert_eq!(grows(&ramp(800)), Some((46_400, 51_200)));
    }

    #[test]
    fn growth_in_the_warm_up_and_single_peaks_are_no_leak() {
        let mut samples =
            vec![10_000, 20_000, 30_000, 40_000, 40_000, 40_000, 40_000, 99_000, 40_000];
        assert_eq!(grows(&samples), None);
        samples.extend([60_000; 3]);
        assert_eq!(grows(&samples), Some((40_000, 60_000)));
    }

    #[test]
    fn too_few_samples_show_nothing() {
        assert_eq!(grows(&[]), None);
        assert_eq!(grows(&[1, 900_000]), None);
    }

    #[test]
    fn each_counter_has_a_limit_of_its_own() {
        let earlier = Counters { descriptors: 9, threads: 5, tasks: 7 };
        assert!(earlier.is_within(&earlier));
        assert!(Counters { threads: 4, ..earlier }.is_within(&earlier));
        for more in [
            Counters { descriptors: 10, ..earlier },
            Counters { threads: 6, tasks: 0, ..earlier },
            Counters { tasks: 8, ..earlier },
        ] {
            assert!(!more.is_within(&earlier), "{more}");
        }
    }
}
