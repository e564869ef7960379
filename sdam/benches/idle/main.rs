//! The cost of an idle client: tasks, sockets, memory, wake-ups and processor time.
//!
//! Deployments are simulated in a separate process, on loopback. Each set of clients is measured in
//! its own process, so that the figures include only the clients. The heartbeat interval is the
//! default of ten seconds.

#![expect(clippy::unwrap_used, reason = "a panic fails the benchmark")]

#[cfg(target_os = "linux")]
mod clients;
#[cfg(target_os = "linux")]
mod process;

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("skipped: the cost of a process is read from /proc");
}

#[cfg(target_os = "linux")]
fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["serve", members] => process::serve(members.parse().unwrap()),
        ["measure", uri, members, further, seconds] => {
            let (members, further) = (members.parse().unwrap(), further.parse().unwrap());
            clients::measure(uri, members, further, seconds.parse().unwrap());
        }
        _ => report::all(&words),
    }
}

#[cfg(target_os = "linux")]
mod report {
    use crate::process::Deployment;

    /// The duration of a measurement in steady state, in seconds: a multiple of the heartbeat
    /// interval.
    const WINDOW: u64 = 30;

    /// The duration of a quick measurement, in seconds.
    const QUICK_WINDOW: u64 = 10;

    /// Measures all figures. `words` are criterion's options and a filter for benchmark names.
    pub(crate) fn all(words: &[&str]) {
        let quick = words.contains(&"--measurement-time");
        // Ignores the option that cargo appends.
        let is_filter = |word: &&&str| !word.starts_with('-') && word.parse::<f64>().is_err();
        let filter = words.iter().rev().find(is_filter).copied().unwrap_or("");
        if !"idle/".contains(filter) && !filter.starts_with("idle/") {
            return;
        }
        let window = if quick { QUICK_WINDOW } else { WINDOW };
        let (three, seven) = (Deployment::start(3), Deployment::start(7));
        let streaming = three.measure("", 3, 100, window);
        let polling = three.measure("&serverMonitoringMode=poll", 3, 100, window);
        let wide = seven.measure("", 7, 100, QUICK_WINDOW);
        print("first_client_memory", streaming[0], "KiB");
        for (mode, figures) in [("streaming", &streaming), ("polling", &polling)] {
            let [_, sockets, tasks, memory, wakeups, switches, cpu] = figures;
            print(&format!("{mode}/sockets_per_server"), sockets / 3.0, "sockets");
            print(&format!("{mode}/tasks_per_server"), tasks / 3.0, "tasks");
            print(&format!("{mode}/memory_per_client"), *memory, "KiB");
            print(&format!("{mode}/wakeups_per_client"), *wakeups, "per_s");
            print(&format!("{mode}/switches_per_client"), *switches, "per_s");
            print(&format!("{mode}/cpu_per_client"), *cpu, "us_per_s");
        }
        let [_, _, _, memory, wakeups, ..] = streaming;
        print("memory_per_further_client", memory, "KiB");
        print("wakeups_per_client", wakeups, "per_s");
        print("memory_per_further_server", (wide[3] - memory) / 4.0, "KiB");
        let [_, _, tasks, memory, wakeups, _, cpu] = three.measure("", 3, 1000, window);
        print("fleet/memory_of_1000_deployments", memory * 1000.0 / 1024.0, "MiB");
        print("fleet/tasks_of_1000_deployments", tasks * 1000.0, "tasks");
        print("fleet/wakeups_of_1000_deployments", wakeups * 1000.0, "per_s");
        print("fleet/cpu_of_1000_deployments", cpu * 1000.0, "us_per_s");
    }

    fn print(name: &str, value: f64, unit: &str) {
        println!("bench: idle/{name} {value:.3} {unit}");
    }
}
