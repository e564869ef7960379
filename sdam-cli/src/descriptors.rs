//! The limit on open files, including sockets.

/// The number of open files that macOS permits, whatever maximum it reports (`OPEN_MAX`).
#[cfg(all(unix, feature = "export"))]
const SAFE: u64 = 10_240;

/// Raises the limit on open files as far as the system permits.
#[cfg(all(unix, feature = "export"))]
pub(crate) fn raise_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let limit = getrlimit(Resource::Nofile);
    raise(limit.current, limit.maximum, |current| {
        setrlimit(Resource::Nofile, Rlimit { current, maximum: limit.maximum }).is_ok()
    });
}

/// Raises `current` to `maximum` or, if the system refuses that, to [`SAFE`] if that is higher. `None`
/// is no limit, and `set` returns whether the system has accepted the limit.
#[cfg(all(unix, feature = "export"))]
fn raise(current: Option<u64>, maximum: Option<u64>, set: impl Fn(Option<u64>) -> bool) {
    let is_safe_more = current.is_some_and(|current| current < SAFE);
    if !set(maximum) && is_safe_more {
        // If this fails, too, the limit stays unchanged.
        set(Some(SAFE));
    }
}

/// Returns whether `error` means that the process or the system has too many open files.
pub(crate) fn are_exhausted(error: &std::io::Error) -> bool {
    #[cfg(unix)]
    let codes = {
        use rustix::io::Errno;

        [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error)
    };
    #[cfg(not(unix))]
    let codes = [10_024];
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

#[cfg(all(not(unix), feature = "export"))]
pub(crate) fn raise_limit() {}

#[cfg(all(test, unix, feature = "export"))]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_limit_is_raised_as_far_as_the_system_permits() {
        let check = |current, maximum, permitted: Option<u64>, expected| {
            let limit = Cell::new(current);
            raise(current, maximum, |wanted| {
                let is_permitted = match (wanted, permitted) {
                    (_, None) => true,
                    (wanted, Some(most)) => wanted.is_some_and(|wanted| wanted <= most),
                };
                if is_permitted {
                    limit.set(wanted);
                }
                is_permitted
            });
            assert_eq!(limit.get(), expected);
        };
        check(Some(1024), Some(4096), None, Some(4096));
        check(Some(1024), None, None, None);
        // macOS reports no maximum, and permits 10,240.
        check(Some(256), None, Some(SAFE), Some(SAFE));
        check(Some(20_000), None, Some(15_000), Some(20_000));
        check(Some(256), None, Some(1_000), Some(256));
    }
}
