//! The limit on open files, including sockets.

/// Raises the limit on open files as far as the system permits.
#[cfg(all(unix, feature = "export"))]
pub(crate) fn raise_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};

    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // On some systems this fails, because they permit less than the maximum that they report. The
    // limit then stays unchanged.
    let _ = setrlimit(Resource::Nofile, limit);
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
