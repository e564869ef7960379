use super::*;

#[test]
fn instants_convert_to_system_time_and_back() {
    let epoch = Epoch::begin();
    let later = epoch.now() + Duration::from_secs(5);
    let system = epoch.to_system(later).unwrap();
    assert_eq!(system - epoch.start, later.since(Instant::EPOCH));
    assert!(epoch.until(later) <= Duration::from_secs(5));
    assert_eq!(epoch.until(Instant::EPOCH), Duration::ZERO);
}

#[test]
fn seeds_differ() {
    assert_ne!(entropy(), entropy());
}

#[test]
fn the_wall_clock_is_that_of_the_system() {
    let before = SystemTime::now();
    let shown = wall();
    let elapsed = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis();
    let millis = u128::from(shown.as_millis());
    assert!(millis <= elapsed, "{millis} is after {elapsed}");
    let before = before.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
    assert!(millis >= before, "{millis} is before {before}");
}
