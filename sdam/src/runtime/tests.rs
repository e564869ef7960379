#[cfg(any(feature = "runtime-tokio", feature = "runtime-smol", feature = "runtime-async-std"))]
mod chosen {
    use super::super::{Adapter, choose, current};

    type Named = Adapter<&'static str>;

    #[test]
    fn the_current_runtime_is_that_of_the_context_or_the_only_enabled_one() {
        let check = |enabled: &[Named], expected: &str| {
            let found = choose(enabled).unwrap_or_else(|error| error.reason().to_string().leak());
            assert_eq!(found, expected);
        };
        let adapter = |feature, needs_context, make: fn() -> Option<&'static str>| Named {
            feature,
            needs_context,
            make,
        };
        let inside = || adapter("runtime-tokio", true, || Some("tokio"));
        let outside = || adapter("runtime-tokio", true, || None);
        let smol = || adapter("runtime-smol", false, || Some("smol"));
        let async_std = || adapter("runtime-async-std", false, || Some("async-std"));
        check(&[inside()], "tokio");
        check(&[outside()], "not in the context of a tokio runtime");
        check(&[smol()], "smol");
        check(&[async_std()], "async-std");
        check(&[inside(), smol()], "tokio");
        check(&[inside(), smol(), async_std()], "tokio");
        check(&[outside(), smol()], "several runtimes are enabled (runtime-tokio, runtime-smol)");
        check(
            &[smol(), async_std()],
            "several runtimes are enabled (runtime-smol, runtime-async-std)",
        );
        check(
            &[outside(), smol(), async_std()],
            "several runtimes are enabled (runtime-tokio, runtime-smol, runtime-async-std)",
        );
    }

    /// The expected result depends on the features of this build.
    #[test]
    fn outside_of_any_runtime_the_only_enabled_runtime_is_current() {
        let enabled: Vec<&str> = [
            (cfg!(feature = "runtime-tokio"), "runtime-tokio"),
            (cfg!(feature = "runtime-smol"), "runtime-smol"),
            (cfg!(feature = "runtime-async-std"), "runtime-async-std"),
        ]
        .into_iter()
        .filter_map(|(on, name)| on.then_some(name))
        .collect();
        match (current(), &*enabled) {
            (Err(error), ["runtime-tokio"]) => assert!(error.remedy().contains("block_on")),
            (Ok(_), ["runtime-smol" | "runtime-async-std"]) => {}
            (Err(error), [_, _, ..]) => assert!(error.reason().contains(&enabled.join(", "))),
            (current, enabled) => panic!("{enabled:?}: {current:?}"),
        }
    }
}

#[cfg(feature = "runtime-tokio")]
#[test]
fn tokio_is_current_in_its_context_whatever_features_are_enabled() {
    assert!(super::tokio().is_err());
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _context = tokio.enter();
    assert!(super::tokio().is_ok());
    let runtime = super::current().unwrap();
    let spawner = format!("{:?}", runtime.spawner);
    assert!(spawner.contains("tokio"), "{spawner}");
}

/// The expected result depends on the features of this build.
#[cfg(feature = "runtime-smol")]
#[test]
fn a_runtime_has_a_tls_library_and_a_resolver_if_their_features_are_enabled() {
    let backend = super::smol().backend;
    assert_eq!(backend.tls.is_some(), cfg!(feature = "tls"));
    assert_eq!(backend.resolver.is_some(), cfg!(feature = "srv"));
    #[cfg(feature = "blocking")]
    {
        let backend = super::blocking();
        assert_eq!(backend.tls.is_some(), cfg!(feature = "tls"));
        assert_eq!(backend.resolver.is_some(), cfg!(feature = "srv"));
    }
}
