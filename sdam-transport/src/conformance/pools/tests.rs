//! Tests that the rules of the suite are written in the documentation of the seam.

use crate::pool::Established;

use super::*;

/// A user whose pools are never created.
struct Nothing;

#[async_trait]
impl PoolUser for Nothing {
    type Factory = crate::pool::NoPools;
    type Connection = Established;

    fn claims(&self) -> &[Claim] {
        Claim::ALL
    }

    fn factory(&self, _: &Options) -> crate::pool::NoPools {
        crate::pool::NoPools
    }

    async fn check_out(&self, _: &crate::pool::NoPools) -> Result<Established, Failure> {
        Err(Failure::Other("there are no connections".into()))
    }

    async fn run_command(&self, _: &mut Established, _: &[u8]) -> Result<(), Failure> {
        Ok(())
    }

    fn check_in(&self, _: &crate::pool::NoPools, connection: Established) {
        connection.close();
    }
}

/// Returns the documentation in `source` in one line.
fn documentation(source: &str) -> String {
    let lines = source.lines().map(str::trim_start);
    let texts = lines.filter_map(|line| line.strip_prefix("///"));
    texts
        .collect::<String>()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn every_rule_is_quoted_from_the_documentation_of_its_type() {
    for check in checks::<Nothing>() {
        let source = match check.rule.contract {
            "PoolFactory" | "PoolHandle" => include_str!("../../pool.rs"),
            "Claim" => include_str!("../pools.rs"),
            other => panic!("{other} has no contract"),
        };
        let Rule {
            check,
            contract,
            words,
        } = check.rule;
        let text = documentation(source);
        assert!(
            text.contains(words),
            "{check}: {contract} does not say: {words}"
        );
    }
}

#[test]
fn a_pool_that_does_nothing_breaks_the_rules_of_check_outs() {
    let failures = failures_of(
        Nothing,
        "a_ready_pool_serves_check_outs",
        Duration::from_secs(20),
    );
    let [failure] = failures.as_slice() else {
        panic!("{failures:?}");
    };
    assert!(
        failure.contains("the check-out fails: there are no connections"),
        "{failure}"
    );
}

#[test]
fn every_claim_adds_checks() {
    let all = names::<Nothing>(Claim::ALL);
    for claim in Claim::ALL {
        let others: Vec<_> = Claim::ALL
            .iter()
            .copied()
            .filter(|other| other != claim)
            .collect();
        assert!(names::<Nothing>(&others).len() < all.len(), "{claim:?}");
    }
}

#[test]
fn every_check_needs_earlier_checks_only() {
    let mut earlier = Vec::new();
    for check in checks::<Nothing>() {
        for need in check.needs {
            assert!(earlier.contains(need), "{}: {need}", check.rule.check);
        }
        earlier.push(check.rule.check);
    }
}
