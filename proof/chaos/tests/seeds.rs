//! Runs a few seeds of every kind as tests.

use sdam_chaos::{
    Counts,
    plan::{Kind, Plan},
    regression,
    run::{run, run_twice},
};

#[test]
#[ignore = "deep: seeds"]
fn every_kind_of_faults_passes_and_exercises_the_client() {
    for &kind in Kind::ALL {
        let mut seen = Counts::default();
        for seed in 0..8 {
            seen += run_twice(&Plan::new(seed, kind)).unwrap().counts;
        }
        let Counts { selected, timed_out, errors, faults, bad_replies, encrypted, proxied, .. } =
            seen;
        for (what, count) in [
            ("selected", selected),
            ("timed out", timed_out),
            ("errors", errors),
            ("faults", faults),
            ("connections with TLS", encrypted),
            ("connections to a proxy", proxied),
        ] {
            assert!(count > 0, "{kind}: {what}");
        }
        // The single-threaded client has no pools, so it receives no invalid replies.
        assert_eq!(bad_replies > 0, kind != Kind::Scan, "{kind}");
    }
}

#[test]
#[ignore = "deep: seeds"]
fn different_seeds_yield_different_runs() {
    let trace = |seed| run(&Plan::new(seed, Kind::Random)).unwrap().trace;
    let mut traces: Vec<u64> = (0..10).map(trace).collect();
    traces.sort_unstable();
    traces.dedup();
    assert_eq!(traces.len(), 10);
}

#[test]
#[ignore = "deep: seeds"]
fn stored_regressions_pass() {
    for (name, regression) in regression::all().unwrap() {
        if let Err(failure) = run_twice(&regression.plan) {
            panic!("{name}: {failure}");
        }
    }
}
