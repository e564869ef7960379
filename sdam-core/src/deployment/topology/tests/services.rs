//! Tests of the generations of services behind a load balancer (F-67).

use super::*;
use crate::{error::ErrorOutcome, report::ErrorReport};

/// A load balancer, with connections to its services.
struct Balancer {
    machine: Topology,
    server: ServerId,
}

impl Balancer {
    fn new() -> Self {
        let mut options = options(&["a"]);
        options.load_balanced = true;
        let machine = opened(&options);
        let server = id(&machine, "a");
        Self { machine, server }
    }

    fn generation(&self, service: ObjectId) -> u64 {
        let generation = self.machine.generation(self.server, Some(service));
        generation.unwrap().as_u64()
    }

    /// Opens a connection and returns its generation.
    fn open(&mut self, service: ObjectId) -> u64 {
        let mut hello = hello(ServerType::Mongos);
        hello.service_id = Some(service);
        let steps = handshake(&mut self.machine, self.server, Generation::FIRST, hello);
        assert!(steps.is_empty());
        self.generation(service)
    }

    fn close(&mut self, service: ObjectId, generation: u64) {
        let generation = Generation::from_u64(generation);
        self.machine.service_connection_closed(self.server, service, generation);
    }

    fn fail(&mut self, service: ObjectId, generation: u64) -> ErrorOutcome {
        let generation = Generation::from_u64(generation);
        let error = ErrorReport::new(generation, Error::network(Stage::Operation, "broken"))
            .with_service(service);
        reported(&mut self.machine, self.server, &error).0
    }

    fn known(&self) -> usize {
        self.machine.pools[0].services.known.len()
    }
}

fn service(number: u32) -> ObjectId {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    ObjectId::from_bytes(bytes)
}

#[test]
fn errors_of_the_current_generation_count_after_a_service_returned() {
    let mut balancer = Balancer::new();
    let s = service(1);
    for _ in 0..3 {
        let (first, second) = (balancer.open(s), balancer.open(s));
        assert_eq!(first, second);
        assert_eq!(balancer.fail(s, first), ErrorOutcome::ServiceCleared);
        assert_eq!(balancer.fail(s, second), ErrorOutcome::Stale);
        let third = balancer.open(s);
        assert_eq!(third, first + 1);
        balancer.close(s, first);
        balancer.close(s, second);
        assert_eq!(balancer.generation(s), third, "a connection is left");
        assert_eq!(balancer.fail(s, third), ErrorOutcome::ServiceCleared);
        balancer.close(s, third);
    }
}

#[test]
fn errors_of_connections_from_before_a_service_returned_are_stale() {
    let mut balancer = Balancer::new();
    let (s, other) = (service(1), service(2));
    let old = balancer.open(s);
    let lasting = balancer.open(other);
    balancer.close(s, old);
    assert_eq!(balancer.fail(s, old), ErrorOutcome::Stale, "it is gone");
    let new = balancer.open(s);
    assert_eq!(balancer.fail(s, old), ErrorOutcome::Stale, "it is back");
    assert_eq!(balancer.generation(s), new);
    assert_eq!(
        balancer.fail(other, lasting),
        ErrorOutcome::ServiceCleared,
        "another service is not concerned"
    );
}

#[test]
fn closing_an_old_connection_does_not_affect_a_service_that_returned() {
    let mut balancer = Balancer::new();
    let s = service(1);
    let old = balancer.open(s);
    balancer.close(s, old);
    let new = balancer.open(s);
    balancer.close(s, old);
    balancer.close(service(2), new);
    assert_eq!(balancer.known(), 1, "{:?}", balancer.machine);
    assert_eq!(balancer.fail(s, new), ErrorOutcome::ServiceCleared);
}

#[test]
fn a_service_without_connections_is_forgotten() {
    let mut balancer = Balancer::new();
    for number in 0..1000 {
        let generation = balancer.open(service(number));
        if number % 2 == 0 {
            balancer.fail(service(number), generation);
        }
        balancer.close(service(number), generation);
    }
    assert_eq!(balancer.known(), 0, "{:?}", balancer.machine);
}

#[test]
fn a_service_without_reported_handshakes_has_the_first_generation() {
    let mut balancer = Balancer::new();
    for generation in 0..3 {
        assert_eq!(balancer.generation(service(1)), generation);
        let outcome = balancer.fail(service(1), generation);
        assert_eq!(outcome, ErrorOutcome::ServiceCleared);
    }
    assert_eq!(balancer.generation(service(2)), 0);
}
