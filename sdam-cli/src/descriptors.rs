//! The limit of open files, which sockets count towards.

/// Raises the limit as far as the system permits.
#[cfg(unix)]
pub(crate) fn raise_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};

    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Some systems permit less than they say; then the limit stays as it is.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Returns the limit; `None` if there is none.
#[cfg(unix)]
pub(crate) fn limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

#[cfg(not(unix))]
pub(crate) fn raise_limit() {}

#[cfg(not(unix))]
pub(crate) fn limit() -> Option<u64> {
    None
}
