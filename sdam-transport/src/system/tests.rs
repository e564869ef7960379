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
