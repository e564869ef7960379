//! Tests that no change of a deadline escapes the caller, whatever the inputs.

use std::{collections::BTreeMap, vec, vec::Vec};

use super::world::*;

/// The deadlines of each server that a caller who follows the contract has read last, without and
/// with waiting selections.
type Read = BTreeMap<ServerId, [Option<Instant>; 2]>;

fn fresh(world: &World, server: ServerId) -> [Option<Instant>; 2] {
    [false, true].map(|wanted| world.deployment.deadline_of(Timer::Server(server), wanted))
}

/// Passes `input`, and reads the deadlines that the contract tells the caller to read. Checks that
/// no other deadline is sooner than when it was read.
fn pass(world: &mut World, read: &mut Read, own: Option<ServerId>, input: Input) {
    let text = std::format!("{input:?}");
    let outputs = world.deployment.handle(world.now, input);
    let mut news: Vec<_> = own.into_iter().collect();
    for output in &outputs {
        match output {
            Output::Wake { server } | Output::OpenServer { server, .. } => news.push(*server),
            Output::CloseServer { server } => drop(read.remove(server)),
            _ => {}
        }
    }
    let _ = world.describe(outputs);
    news.retain(|server| world.deployment.servers.get(*server).is_some());
    for server in news {
        read.insert(server, fresh(world, server));
    }
    for (server, before) in read.iter() {
        for (before, after) in before.iter().zip(fresh(world, *server)) {
            let is_sooner = after.is_some_and(|after| before.is_none_or(|before| after < before));
            assert!(!is_sooner, "{server}: {before:?}, then {after:?}, after {text}");
        }
    }
}

/// Passes random inputs to a set with three members.
fn history(seed: u64) {
    let mut rng = Rng::new(seed);
    let names = ["a", "b", "c"];
    let mut options = if rng.below(3) == 0 { polled(&names) } else { options(&names) };
    options.detector = (rng.below(2) == 0).then_some(Detector::PROBING);
    let mut world = World::new(&options);
    let mut read = Read::new();
    pass(&mut world, &mut read, None, Input::Open);
    for _ in 0..120 {
        let millis = [0, 1, 50, 400, 900, 11_000][rng.below(6) as usize];
        world.now = world.now + Duration::from_millis(millis);
        let name = names[rng.below(3) as usize];
        let server = world.id(name);
        let role = [Role::Check, Role::Check, Role::Ping, Role::Probe][rng.below(4) as usize];
        let conn = world.conn(name, role);
        let (own, input) = match rng.below(12) {
            0..3 => {
                let (timer, wanted) = (Timer::Server(server), rng.below(4) == 0);
                (Some(server), Input::Due { timer, wanted })
            }
            3 | 4 => (Some(server), Input::Connected { conn }),
            5..8 => {
                let sent = world.asked.get(&conn).copied().unwrap_or(world.now);
                let mut reply = member(rng.below(3) == 0, rng.below(4) as i64);
                reply.insert("hosts", bson::bson!(["a", "b", "c"]));
                let reply = HelloReply::parse(reply.to_vec().unwrap());
                let (at, more_to_come) = (world.now, rng.below(2) == 0);
                (Some(server), Input::Reply { conn, sent, at, reply, more_to_come })
            }
            8 => {
                let error = Error::network(Stage::Hello, "scripted");
                (Some(server), Input::Failed { conn, at: world.now, error })
            }
            9 => {
                let generation = world.deployment.generation(server, None).unwrap();
                let kinds = [Error::network, Error::timeout, Error::protocol];
                let error = kinds[rng.below(3) as usize](Stage::Operation, "scripted");
                (None, Input::Error { server, report: ErrorReport::new(generation, error) })
            }
            10 => (None, Input::Answered { server }),
            _ if rng.below(2) == 0 => (None, Input::CheckRequested { server }),
            _ => (None, Input::Late { server, sent: world.now - Duration::from_secs(1) }),
        };
        pass(&mut world, &mut read, own, input);
    }
}

#[test]
fn every_sooner_deadline_is_told() {
    (0..400).for_each(history);
}
