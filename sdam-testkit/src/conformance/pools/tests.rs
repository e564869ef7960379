//! Tests that the documentation of the pool traits contains the rules of the suite.

use std::sync::Mutex;

use sdam_core::{
    error::{ErrorKind, Stage},
    pool::PoolClear,
};

use super::*;
use sdam_transport::{
    pool::{Established, PoolContext, PoolHandle},
    wire::OpMsg,
};

/// Returns the documentation in `source` as one line.
fn documentation(source: &str) -> String {
    let lines = source.lines().map(str::trim_start);
    let texts = lines.filter_map(|line| line.strip_prefix("///"));
    texts.collect::<String>().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn every_rule_is_quoted_from_the_documentation_of_its_type() {
    for check in checks::<Keeping>() {
        let source = match check.rule.contract {
            "PoolFactory" | "PoolHandle" => include_str!("../../../../sdam-transport/src/pool.rs"),
            "Claim" => include_str!("../pools.rs"),
            other => panic!("{other} has no contract"),
        };
        let Rule { check, contract, words } = check.rule;
        let text = documentation(source);
        assert!(text.contains(words), "{check}: {contract} does not say: {words}");
    }
}

#[test]
fn every_claim_adds_checks() {
    let all = names::<Keeping>(Claim::ALL);
    for claim in Claim::ALL {
        let others: Vec<_> = Claim::ALL.iter().copied().filter(|other| other != claim).collect();
        assert!(names::<Keeping>(&others).len() < all.len(), "{claim:?}");
    }
}

#[test]
fn every_check_needs_earlier_checks_only() {
    let mut earlier = Vec::new();
    for check in checks::<Keeping>() {
        for need in check.needs {
            assert!(earlier.contains(need), "{}: {need}", check.rule.check);
        }
        earlier.push(check.rule.check);
    }
}

/// The reaction of a test pool to an invalid reply. The pool is built on [`Established`].
#[derive(Clone, Copy, Debug)]
enum Habit {
    /// Closes unusable connections.
    Closes,
    /// Keeps every connection.
    Keeps,
    /// Frames its own messages, and accepts any message as the reply.
    TakesAny,
}

/// Uses test pools with the given habit. Such pools only open, keep and hand out connections.
struct Keeping(Habit);

#[derive(Debug)]
struct Keepers;

#[derive(Debug)]
struct Keeper {
    context: PoolContext,
    idle: Mutex<Vec<Established>>,
}

impl PoolFactory for Keepers {
    type Pool = Keeper;

    fn create(&self, context: PoolContext) -> Keeper {
        let idle = Mutex::default();
        Keeper { context, idle }
    }
}

impl PoolHandle for Keeper {
    fn ready(&self) {}
    fn clear(&self, _: &PoolClear) {}
    fn close(&self) {}
}

#[async_trait]
impl PoolUser for Keeping {
    type Factory = Keepers;
    type Connection = Established;

    fn claims(&self) -> &[Claim] {
        &[Claim::Reuses]
    }

    fn factory(&self, _: &Options) -> Keepers {
        Keepers
    }

    async fn check_out(&self, pool: &Keeper) -> Result<Established, Error> {
        let idle = pool.idle.lock().map_or(None, |mut idle| idle.pop());
        match idle {
            Some(idle) => Ok(idle),
            None => Ok(pool.context.establish(None).await?),
        }
    }

    async fn run_command(&self, own: &mut Established, command: &[u8]) -> Result<(), Error> {
        let Habit::TakesAny = self.0 else {
            own.run_command(command, None).await?;
            return Ok(());
        };
        let request = OpMsg { request_id: 7, body: command, ..OpMsg::default() };
        let request = request.encode().map_err(other)?;
        own.connection().send(request).await.map_err(other)?;
        own.connection().recv().await.map_err(other)?;
        Ok(())
    }

    fn check_in(&self, pool: &Keeper, connection: Established) {
        let keeps = !matches!(self.0, Habit::Closes) || connection.is_usable();
        match pool.idle.lock() {
            Ok(mut idle) if keeps => idle.push(connection),
            _ => connection.close(),
        }
    }
}

fn other(error: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Internal, Stage::CheckOut, error.to_string())
}

#[test]
fn a_pool_over_established_connections_that_keeps_unusable_ones_is_found_out() {
    // If a connection receives a message that is not the expected reply, it is closed (O-39).
    let check = |habit, expected: Option<&str>| {
        let name = "connections_with_bad_replies_are_not_reused";
        let failures = failures_of(Keeping(habit), name, Duration::from_secs(20));
        assert_eq!(failures.len(), usize::from(expected.is_some()));
        let found = |words| failures.iter().any(|failure| failure.contains(words));
        assert!(expected.is_none_or(found), "{habit:?}: {failures:?}");
    };
    check(Habit::Closes, None);
    check(Habit::Keeps, Some("a later one has no reply"));
    check(Habit::TakesAny, Some("the command succeeds"));
}
