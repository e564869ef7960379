//! Tests targets files that change while the program is running.

use std::{fs, path::PathBuf};

use super::*;

/// A folder with a targets file, and the program that follows this file.
struct Followed {
    folder: tempfile::TempDir,
    program: Running,
}

impl Followed {
    fn start(targets: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("targets.toml");
        fs::write(&file, targets).unwrap();
        Self::follow(folder, file)
    }

    fn follow(folder: tempfile::TempDir, file: PathBuf) -> Self {
        let arguments = Arguments { targets: Some(file), ..Arguments::default() };
        Self { folder, program: Running::start_with(arguments) }
    }

    /// Replaces the file atomically.
    fn replace(&self, targets: &str) {
        let [new, file] = ["new", "targets.toml"].map(|name| self.folder.path().join(name));
        fs::write(&new, targets).unwrap();
        fs::rename(new, file).unwrap();
    }

    /// Returns the next remark, without the path of the file.
    fn remark(&self) -> String {
        let remark = self.program.remarks.recv().unwrap();
        remark.replace(&*self.folder.path().to_string_lossy(), "")
    }

    fn metric(&self, name: &str) -> String {
        let (_, page) = self.program.get("/metrics");
        let line = page.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("no {name}: {page}")).to_owned()
    }
}

const INVALID: &str = "sdam_config_invalid_targets";
const SUCCESSFUL: &str = "sdam_config_last_reload_successful";
const TIMESTAMP: &str = "sdam_config_last_reload_success_timestamp_seconds";

#[test]
fn a_changed_file_starts_and_stops_deployments_and_the_others_go_on() {
    let set = Blueprint::replica_set(3).serve().unwrap();
    let [old, new] = [(); 2].map(|()| Blueprint::standalone().serve().unwrap());
    let kept = format!("kept = '{}'\n", set.uri());
    let test = Followed::start(&format!("{kept}gone = '{}'\nmoved = '{}'\n", old.uri(), old.uri()));
    for name in ["kept", "gone", "moved"] {
        test.program.get_until(&format!("/healthz?target={name}"), 200);
    }
    set.step_down().unwrap();
    let counter = "sdam_failovers_total{deployment=\"kept\"}";
    wait_until(counter, || test.metric(counter) == "1");
    let before = test.metric(TIMESTAMP);

    // The new first line moves the other lines down. This must not count as a change to the
    // deployments on these lines.
    test.replace(&format!("# Shop\nadded = '{}'\n{kept}moved = '{}'\n", new.uri(), new.uri()));
    let said = "--targets /targets.toml was read: 2 added, 2 removed, 1 unchanged";
    assert_eq!(test.remark(), said);
    // Check that the topology was not restarted: a new topology would have neither a primary nor a
    // failover yet.
    assert_eq!(test.program.get("/healthz?target=kept").0, 200);
    assert_eq!(test.metric(counter), "1");
    assert_eq!(test.metric("sdam_up{deployment=\"kept\"}"), "1");
    test.program.get_until("/healthz?target=added", 200);
    let (_, moved) = test.program.get("/probe?target=moved");
    let place =
        |uri: &str| format!("port=\"{}\"", Options::parse(uri).unwrap().seeds[0].port().unwrap());
    assert!(moved.contains(&place(new.uri())), "{moved}");
    assert_eq!(test.program.get("/probe?target=gone").0, 404);
    let (_, page) = test.program.get("/metrics");
    for former in ["deployment=\"gone\"", &*place(old.uri())] {
        assert!(!page.contains(former), "{page}");
    }
    assert_eq!(test.metric(SUCCESSFUL), "1");
    let [before, after] = [before, test.metric(TIMESTAMP)].map(|it| it.parse::<f64>().unwrap());
    assert!(before < after, "{before} {after}");
    test.program.finish();
}

#[test]
fn an_invalid_file_changes_nothing_until_it_is_corrected() {
    let server = Blueprint::standalone().serve().unwrap();
    let valid = format!("alone = '{}'\n", server.uri());
    let test = Followed::start(&valid);
    test.program.get_until("/healthz?target=alone", 200);
    assert_eq!(test.metric(SUCCESSFUL), "1");
    let check = |targets: &str, start: &str| {
        let before = test.metric(TIMESTAMP);
        test.replace(targets);
        let said = test.remark();
        assert!(said.starts_with(&format!("warning: --targets /targets.toml: {start}")), "{said}");
        assert!(said.ends_with("; all deployments stay as they were"), "{said}");
        assert!(!said.contains("secret"), "{said}");
        assert_eq!(test.metric(SUCCESSFUL), "0");
        assert_eq!(test.metric(TIMESTAMP), before);
        assert_eq!(test.program.get("/healthz?target=alone").0, 200);
    };
    check(&format!("{valid}b = mongodb://u:secret@h/\n"), "line 2: b: ");
    check("c = 'mongodb://u:secret@h,i/?directConnection=true'\n", "line 1: c: `directConnection`");
    check("", "it names no deployment");
    // Each error is reported once. The correction of the file is reported, too.
    test.replace(&valid);
    let said = "--targets /targets.toml was read: 0 added, 0 removed, 1 unchanged";
    assert_eq!(test.remark(), said);
    assert_eq!(test.metric(SUCCESSFUL), "1");
    test.program.finish();
}

/// A missing file with a secret, a wrong connection string or a wrong name affects only its own
/// deployment, at the start and after a change.
#[test]
fn a_deployment_that_cannot_be_watched_blocks_no_other() {
    let [one, two] = [(); 2].map(|()| Blueprint::standalone().serve().unwrap());
    let missing = "bad = { uri = 'mongodb://u@h/', passwordFile = 'none' }\n";
    let test = Followed::start(&format!("{missing}one = '{}'\n", one.uri()));
    let skipped = |line: u32, reason: &str| {
        let said = test.remark();
        let start = format!("warning: --targets /targets.toml: line {line}: {reason}");
        assert!(said.starts_with(&start), "{said}");
        assert!(said.ends_with("; this deployment is skipped, or stays as it was"), "{said}");
    };
    skipped(1, "bad: passwordFile /none: there is no such file");
    test.program.get_until("/healthz?target=one", 200);
    assert_eq!(test.metric(INVALID), "1");
    assert_eq!(test.metric(SUCCESSFUL), "1");
    assert_eq!(test.program.get("/healthz?target=bad").0, 404);

    // The error of `bad` was already reported. `one` stays unchanged, and `two` is added.
    let wrong = "one = 'mongodb://h,i/?directConnection=true'\n'a b' = 'mongodb://h/'\n";
    test.replace(&format!("{missing}{wrong}two = '{}'\n", two.uri()));
    skipped(3, "a b: a name must consist");
    skipped(2, "one: `directConnection`");
    assert_eq!(test.remark(), "--targets /targets.toml was read: 1 added, 0 removed, 1 unchanged");
    assert_eq!(test.metric(INVALID), "3");
    assert_eq!(test.program.get("/healthz?target=one").0, 200);
    test.program.get_until("/healthz?target=two", 200);

    test.replace(&format!("two = '{}'\n", two.uri()));
    assert_eq!(test.remark(), "--targets /targets.toml was read: 0 added, 1 removed, 1 unchanged");
    assert_eq!(test.metric(INVALID), "0");
    assert_eq!(test.program.get("/healthz?target=one").0, 404);
    test.program.finish();
}

/// Kubernetes updates a mounted file by replacing the symbolic link `..data`. It changes neither
/// the file itself nor the folder that contains it.
#[cfg(unix)]
#[test]
fn the_links_of_a_kubernetes_volume_are_followed_and_so_are_secrets_in_it() {
    use std::os::unix::fs::symlink;

    let server = Blueprint::standalone().serve().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_owned();
    let path = |name: &str| root.join(name);
    let publish = |version: &str, name: &str, password: &str| {
        fs::create_dir(path(version)).unwrap();
        let uri = server.uri().replace("://", "://sdam@");
        let targets = format!("{name} = {{ uri = '{uri}', passwordFile = 'password' }}\n");
        fs::write(path(version).join("targets.toml"), targets).unwrap();
        fs::write(path(version).join("password"), password).unwrap();
        symlink(version, path("..data_tmp")).unwrap();
        fs::rename(path("..data_tmp"), path("..data")).unwrap();
    };
    publish("..1", "one", "secret\n");
    for name in ["targets.toml", "password"] {
        symlink(format!("..data/{name}"), path(name)).unwrap();
    }
    let test = Followed::follow(folder, path("targets.toml"));
    let changed = "--targets /targets.toml was read: 1 added, 1 removed, 0 unchanged";
    let check = |version: &str, name: &str, password: &str, said: &str| {
        publish(version, name, password);
        assert_eq!(test.remark(), said);
    };
    test.program.get_until("/healthz?target=one", 200);
    check("..2", "two", "secret\n", changed);
    fs::remove_dir_all(path("..1")).unwrap();
    test.program.get_until("/healthz?target=two", 200);
    check("..3", "two", "another\n", changed);
    check(
        "..4",
        "two",
        "\n",
        "warning: --targets /targets.toml: line 1: two: passwordFile /password: it is empty; write \
         the password into it; all deployments stay as they were",
    );
    test.program.get_until("/healthz?target=two", 200);
    test.program.finish();
}
