//! Tests of silent servers in a deployment with a failure detector.

use super::world::*;

const LOST: [&str; 4] =
    ["ServerSuspected a", "ServerHeartbeatFailed a", "disconnect a1", "disconnect a1 for pings"];

fn probing(mut options: Options) -> Options {
    options.detector = Some(Detector::PROBING);
    options
}

/// Returns a `World` with the primary `a` and the secondary `b`, both of which stream and were
/// measured at 1000 ms. The detector waits for 750 ms.
fn streaming_set() -> World {
    let mut world = World::open(&probing(options(&["a", "b"])));
    world.check_both();
    for name in ["a", "b"] {
        let ping = world.conn(name, Role::Ping);
        let _ = world.connected(ping);
        pong(&mut world, name);
    }
    world
}

fn pong(world: &mut World, name: &str) {
    let ping = world.conn(name, Role::Ping);
    let _ = world.reply(ping, member(name == "a", 1), false);
}

/// Reports that an operation on `a` has waited since `sent`.
fn late(world: &mut World, sent: u64) -> Vec<String> {
    world.handle(Input::Late { server: world.id("a"), sent: Instant::from_millis(sent) })
}

/// Returns a `World` with an operation sent at 2,000 ms and pings to both servers at 2,750 ms.
fn asked() -> World {
    let mut world = streaming_set();
    world.wait_until(2_750);
    assert_eq!(late(&mut world, 2_000), ["wake a"]);
    assert_eq!(world.due("a", false), ["hello on a1 for pings", "hello on b1 for pings", "wake b"]);
    assert_eq!(world.deadline("a", false), Some(2_850));
    world
}

/// Returns the `World` of `asked` after a second ping to `a`, on a new connection, at 2,850 ms.
fn probed() -> World {
    let mut world = asked();
    world.wait_until(2_850);
    assert_eq!(world.due("a", false), ["connect a1 for a probe"]);
    let probe = world.conn("a", Role::Probe);
    assert_eq!(world.connected(probe), ["hello on a1 for a probe"]);
    assert_eq!(world.deadline("a", false), Some(3_500), "the ping is overdue then");
    world
}

#[test]
fn a_server_that_answers_neither_an_operation_nor_a_ping_is_lost_if_another_one_answers() {
    let mut world = probed();
    world.wait_until(2_860);
    pong(&mut world, "b");
    world.wait_until(3_600);
    let outputs = world.due("a", false);
    assert_eq!(outputs[..4], LOST);
    assert!(outputs.contains(&"clear a to 1 interrupting".into()), "{outputs:?}");
    assert_eq!(world.server_type("a"), ServerType::Unknown);
    let last = &outputs[outputs.len() - 2..];
    assert_eq!(last, ["ServerHeartbeatStarted a", "connect a2"], "the next check begins at once");
    assert_eq!(world.deadline("a", false), Some(13_600), "an Unknown server is not judged");
}

#[test]
fn any_answer_ends_the_trial() {
    // An answer on another connection gives the outstanding ping another full wait.
    for (role, next) in [(Role::Ping, 11_750), (Role::Check, 4_150), (Role::Probe, 4_150)] {
        let mut world = probed();
        world.wait_until(3_400);
        pong(&mut world, "b");
        let conn = world.conn("a", role);
        let outputs = world.reply(conn, member(true, 1), role == Role::Check);
        assert_eq!(outputs.first().unwrap(), "disconnect a1 for a probe");
        assert_eq!(world.deadline("a", false), Some(next), "{role:?}");
    }
    let mut world = probed();
    let answered = world.handle(Input::Answered { server: world.id("a") });
    assert_eq!(answered, ["disconnect a1 for a probe"], "of an operation");
}

#[test]
fn an_operation_counts_from_the_last_answer_on_because_it_may_be_slow() {
    let mut world = streaming_set();
    world.wait_until(1_300);
    assert_eq!(late(&mut world, 500), ["wake a"]);
    assert_eq!(world.deadline("a", false), Some(1_750));
    world.wait_until(1_400);
    let answered = world.handle(Input::Answered { server: world.id("a") });
    assert!(answered.is_empty(), "{answered:?}");
    assert_eq!(world.deadline("a", false), Some(11_750), "its reply has come");
    let mut world = World::open(&options(&["a", "b"]));
    let _ = world.check("a", member(true, 1));
    world.wait_until(2_750);
    assert!(late(&mut world, 2_000).is_empty(), "there is no detector");
}

#[test]
fn nobody_is_lost_while_all_are_silent_and_later_all_are_asked_again() {
    let mut world = probed();
    world.wait_until(3_600);
    assert!(world.due("a", false).is_empty());
    assert_eq!(world.deadline("a", false), Some(12_750), "the time limit of the ping");
    world.wait_until(8_000);
    let ping = world.conn("b", Role::Ping);
    let outputs = world.reply(ping, member(false, 1), false);
    let again = ["disconnect a1 for a probe", "connect a2 for a probe"];
    assert_eq!(outputs[..1], ["ServerSuspected a"]);
    assert_eq!(outputs[1..3], again, "on a new connection");
    assert_eq!(outputs[3..], ["hello on b1 for pings", "wake a"]);
    let probe = world.conn("a", Role::Probe);
    let _ = world.connected(probe);
    assert_eq!(world.deadline("a", false), Some(8_750));
    world.wait_until(8_700);
    pong(&mut world, "b");
    let outputs = world.reply(probe, member(true, 1), false);
    assert_eq!(outputs, ["disconnect a2 for a probe", "ServerSuspicionEnded a"]);
    assert_eq!(world.server_type("a"), ServerType::RsPrimary);
}

#[test]
fn a_stall_of_this_host_begins_the_wait_again_and_makes_it_longer() {
    let mut world = probed();
    pong(&mut world, "b");
    world.wait_until(3_800);
    assert!(world.due("a", false).is_empty(), "200 ms late");
    assert_eq!(world.deadline("a", false), Some(3_800 + 2 * 750));
    world.wait_until(5_300);
    let outputs = world.due("a", false);
    assert_eq!(outputs[..2], ["disconnect a1 for a probe", "connect a2 for a probe"]);
    assert_eq!(outputs[2..], ["hello on b1 for pings", "wake b"], "b's answer is too old");
    pong(&mut world, "b");
    assert_eq!(world.deadline("a", false), Some(6_050), "b has answered in time");
}

#[test]
fn a_ping_without_an_answer_is_followed_by_a_probe_on_a_new_connection() {
    let mut world = streaming_set();
    world.wait_until(10_500);
    // `a` pushes a last change, which also triggers a ping, and then falls silent.
    let check = world.conn("a", Role::Check);
    let outputs = world.reply(check, member(true, 2), true);
    assert!(outputs.contains(&"hello on a1 for pings".into()), "{outputs:?}");
    world.wait_until(11_250);
    let outputs = world.due("a", false);
    assert_eq!(outputs, ["connect a1 for a probe", "hello on b1 for pings"]);
    let probe = world.conn("a", Role::Probe);
    let _ = world.connected(probe);
    world.wait_until(11_260);
    pong(&mut world, "b");
    assert_eq!(world.deadline("a", false), Some(12_000));
    world.wait_until(12_000);
    let outputs = world.due("a", false);
    assert!(outputs.contains(&"disconnect a1 for a probe".into()), "{outputs:?}");
    assert_eq!(world.server_type("a"), ServerType::Unknown);
}

/// Returns a `World` in which the primary `a` and the secondary `b` are polled, and in which an
/// operation was sent at 2,000 ms.
fn polled_and_late() -> World {
    let mut world = World::open(&probing(polled(&["a", "b"])));
    world.check_both();
    world.wait_until(2_750);
    let _ = late(&mut world, 2_000);
    world
}

#[test]
fn a_server_that_is_polled_is_probed_on_a_new_connection_and_its_witness_checked() {
    let mut world = polled_and_late();
    let outputs = world.due("a", false);
    let asked = ["connect a1 for a probe", "ServerHeartbeatStarted a", "hello on a1", "wake b"];
    assert_eq!(outputs, asked);
    assert_eq!(world.due("b", false), ["ServerHeartbeatStarted b", "hello on b1"]);
    let conn = world.conn("b", Role::Check);
    world.wait_until(2_760);
    let _ = world.reply(conn, member(false, 1), false);
    world.wait_until(3_500);
    let outputs = world.due("a", false);
    assert_eq!(outputs[..2], LOST[..2]);
    assert_eq!(world.server_type("a"), ServerType::Unknown);
}

#[test]
fn a_probe_that_is_refused_proves_nothing() {
    let mut world = polled_and_late();
    for _ in 0..2 {
        let _ = world.due("a", false);
    }
    let probe = world.conn("a", Role::Probe);
    let _ = world.failed(probe, ErrorKind::Network);
    assert_eq!(world.deadline("a", false), Some(3_500), "only the check is outstanding");
    world.wait_until(4_600);
    for _ in 0..2 {
        let _ = world.due("a", false);
    }
    assert_eq!(world.server_type("a"), ServerType::RsPrimary);
}

#[test]
fn a_server_whose_check_is_repeated_is_not_known_and_not_judged() {
    let mut world = World::open(&probing(options(&["a", "b"])));
    let _ = world.due("a", false);
    let check = world.conn("a", Role::Check);
    let _ = world.connected(check);
    // The host was suspended, so the reply is too old.
    world.wait_until(60_000);
    assert_eq!(world.reply(check, member(true, 1), false), ["hello on a1"]);
    assert_eq!(world.deadline("a", false), Some(70_000), "the time limit of the check");
}

#[test]
fn an_answer_that_shortens_the_waits_of_others_wakes_them() {
    let mut world = probed();
    world.wait_until(3_800);
    assert!(world.due("a", false).is_empty(), "200 ms late");
    assert_eq!(world.deadline("a", false), Some(3_800 + 2 * 750));
    let answered = world.handle(Input::Answered { server: world.id("b") });
    assert_eq!(answered, ["wake a", "wake b"]);
    assert_eq!(world.deadline("a", false), Some(3_800 + 750));
}

#[test]
fn a_first_check_is_no_sign_of_a_slow_host() {
    let mut world = World::open(&probing(options(&["a", "b"])));
    world.wait_until(60_000);
    world.check_both();
    assert_eq!(world.deadline("a", false), Some(60_750), "one wait after its first ping");
}
