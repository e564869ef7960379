//! Tests of SRV polling.

use super::world::*;
use crate::{options::Srv, srv::SrvRecords};

fn seeded() -> Options {
    let mut options = polled(&["a.db.example.com"]);
    options.srv = Some(Srv::new("db.example.com"));
    options
}

fn due(world: &mut World) -> Vec<String> {
    let timer = Timer::Srv;
    world.handle(Input::Due { timer, wanted: false })
}

#[test]
fn a_record_is_looked_up_every_minute_and_its_hosts_become_servers() {
    // Hosts outside the domain are ignored, and servers that are no longer listed are removed
    // (N-22, N-24).
    let mut world = World::new(&seeded());
    assert_eq!(world.deployment.deadline_of(Timer::Srv, false), None);
    let _ = world.handle(Input::Open);
    let minute = Instant::from_millis(61_000);
    assert_eq!(world.deployment.deadline_of(Timer::Srv, false), Some(minute));
    assert!(due(&mut world).is_empty());
    world.wait_until(61_000);
    assert_eq!(due(&mut world), ["look up _mongodb._tcp.db.example.com"]);
    assert!(due(&mut world).is_empty(), "one look-up at a time");
    let records = SrvRecords::new(vec![address("b.db.example.com")], Duration::ZERO);
    let outputs = world.handle(Input::LookedUp(Ok(records.clone())));
    assert!(outputs.contains(&"open b.db.example.com".into()), "{outputs:?}");
    assert!(outputs.contains(&"close a.db.example.com".into()));
    let next = Some(Instant::from_millis(121_000));
    assert_eq!(world.deployment.deadline_of(Timer::Srv, false), next);
    assert!(world.handle(Input::LookedUp(Ok(records))).is_empty(), "not outstanding");
    let failed = || Input::LookedUp(Err(Error::new(ErrorKind::Network, Stage::Dns, "no answer")));
    assert!(world.handle(failed()).is_empty(), "not outstanding");
    world.wait_until(121_000);
    assert_eq!(due(&mut world), ["look up _mongodb._tcp.db.example.com"]);
    let _ = world.handle(Input::Close);
    assert!(world.handle(failed()).is_empty(), "closed");
}
