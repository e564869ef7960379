//! Measures the resources that this process uses: allocations, processor time, sleeps of threads.

use std::{alloc::System, fs, time::Duration};

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

use crate::Result;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Returns the number of allocations so far, including reallocations that grow a block.
pub fn allocations() -> usize {
    let stats = ALLOCATOR.stats();
    stats.allocations + stats.reallocations
}

/// Returns the number of bytes currently allocated.
pub fn allocated() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

/// Returns the processor time of all live threads.
pub fn cpu() -> Result<Duration> {
    let mut sum = 0;
    for task in fs::read_dir("/proc/self/task")? {
        let times = fs::read_to_string(task?.path().join("schedstat"))?;
        let nanos = times.split_whitespace().next().ok_or("no time")?;
        sum += nanos.parse::<u64>()?;
    }
    Ok(Duration::from_nanos(sum))
}

/// Returns how often the live threads went to sleep.
pub fn sleeps() -> Result<u64> {
    let mut sum = 0;
    for task in fs::read_dir("/proc/self/task")? {
        let status = fs::read_to_string(task?.path().join("status"))?;
        let switches =
            status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        sum += switches.ok_or("no count")?.trim().parse::<u64>()?;
    }
    Ok(sum)
}

/// Returns the duration in microseconds.
pub fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}
