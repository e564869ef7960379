use std::time::Duration;

use super::views::{Client, Subject};

/// A period of uninterrupted disagreement between clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Period {
    pub(super) from: u64,
    pub(super) to: u64,
    /// The combinations of all clients' views, in order, each with its start time.
    pub(super) views: Vec<(u64, Vec<Option<String>>)>,
}

impl Period {
    pub(super) fn length(&self) -> Duration {
        Duration::from_nanos(self.to - self.from)
    }

    /// Returns, for each client, how long its view differed from the view of the majority.
    pub(super) fn contradicted(&self) -> Vec<u64> {
        let ends = self.views.iter().skip(1).map(|(at, _)| *at).chain([self.to]);
        let mut times = vec![0; self.views.first().map_or(0, |(_, views)| views.len())];
        for ((at, views), end) in self.views.iter().zip(ends) {
            let count = |view: &Option<String>| views.iter().filter(|other| *other == view).count();
            let Some(usual) = views.iter().find(|view| 2 * count(view) > views.len()) else {
                continue;
            };
            for (time, view) in times.iter_mut().zip(views) {
                *time += if view == usual { 0 } else { end - at };
            }
        }
        times
    }
}

/// Returns the periods between `from` and `to` in which the clients' views of `subject` differ.
pub(super) fn periods(clients: &[Client], subject: &Subject, from: u64, to: u64) -> Vec<Period> {
    let changes = clients.iter().flat_map(|client| client.changes(subject));
    let changes = changes.filter(|at| (from..to).contains(at));
    let mut times: Vec<u64> = changes.chain([from]).collect();
    times.sort_unstable();
    times.dedup();
    let ends = times.iter().skip(1).copied().chain([to]);
    let mut periods: Vec<Period> = Vec::new();
    for (at, end) in times.iter().copied().zip(ends) {
        let views: Vec<_> = clients.iter().map(|it| it.view(subject, at)).collect();
        if views.iter().all(|view| *view == views[0]) {
            continue;
        }
        let views = views.iter().map(|view| view.map(ToOwned::to_owned));
        let views = (at, views.collect());
        match periods.last_mut() {
            Some(last) if last.to == at => {
                last.to = end;
                last.views.push(views);
            }
            _ => periods.push(Period { from: at, to: end, views: vec![views] }),
        }
    }
    periods
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the periods of disagreement between clients that have the given `views`, each with
    /// its start time.
    fn found(views: &[&[(u64, Option<&str>)]]) -> Vec<Period> {
        let clients = views.iter().map(|views| Client::with_views(Subject::Primary, views));
        periods(&clients.collect::<Vec<_>>(), &Subject::Primary, 10, 100)
    }

    /// Checks that the periods of disagreement, each as `(from, to, number of views)`, are
    /// `expected`.
    fn check(views: &[&[(u64, Option<&str>)]], expected: &[(u64, u64, usize)]) {
        let found = found(views);
        let found = found.iter().map(|it| (it.from, it.to, it.views.len()));
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_client_is_contradicted_while_most_see_something_else() {
        let (a, b) = (Some("a"), Some("b"));
        let views: [&[(u64, Option<&str>)]; 3] =
            [&[(0, a), (40, b)], &[(0, a), (50, b)], &[(0, a), (30, b)]];
        let times: Vec<_> = found(&views).iter().map(Period::contradicted).collect();
        assert_eq!(times, [[0, 10, 10]]);
        let two = found(&views[..2]);
        assert_eq!(two[0].contradicted(), [0, 0], "neither of two is the majority");
    }

    #[test]
    fn a_period_lasts_as_long_as_any_two_clients_disagree() {
        let (a, b) = (Some("a"), Some("b"));
        check(&[&[(0, a)], &[(0, a)]], &[]);
        check(&[&[(0, a)], &[(0, b)]], &[(10, 100, 1)]);
        check(&[&[(0, a), (20, b)], &[(0, a), (30, b)]], &[(20, 30, 1)]);
        check(&[&[(0, a), (20, None), (30, b)], &[(0, a), (40, b)]], &[(20, 40, 2)]);
        check(&[&[(0, a), (20, b), (60, a)], &[(0, a), (30, b)]], &[(20, 30, 1), (60, 100, 1)]);
        check(&[&[(0, a)], &[(0, a)], &[(0, a), (99, None), (120, a)]], &[(99, 100, 1)]);
    }
}
