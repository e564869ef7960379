//! Tests the files of `deploy` with the program that they start or ask.

use std::{fs, io::ErrorKind, path::Path, process::Command};

use saphyr::{LoadableYamlNode, Yaml};
use sdam_core::{address::ServerAddress, options::Options};
use sdam_sim::Blueprint;

use super::{Running, read, wait_until};
use crate::cli::tests::export;

/// Returns the document whose kind is `kind`. There must be exactly one.
fn document<'d>(documents: &'d [Yaml<'d>], kind: &str) -> &'d Yaml<'d> {
    let mut found = documents.iter().filter(|it| text(&it["kind"]) == kind);
    let only = found.next().expect(kind);
    assert!(found.next().is_none(), "{kind}");
    only
}

fn text<'y>(value: &'y Yaml<'_>) -> &'y str {
    value.as_str().unwrap_or_else(|| panic!("{value:?}"))
}

fn list<'y>(value: &'y Yaml<'y>) -> &'y [Yaml<'y>] {
    value.as_vec().unwrap_or_else(|| panic!("{value:?}"))
}

/// Returns the element of the list `value` whose name is `name`.
fn named<'y>(value: &'y Yaml<'y>, name: &str) -> &'y Yaml<'y> {
    let found = list(value).iter().find(|it| text(&it["name"]) == name);
    found.unwrap_or_else(|| panic!("no {name}: {value:?}"))
}

#[test]
fn the_manifests_agree_with_each_other_and_with_the_program() {
    let manifests = read("kubernetes/sdam-export.yaml");
    let documents = Yaml::load_from_str(&manifests).unwrap();
    let spec = &document(&documents, "Deployment")["spec"];
    let pod = &spec["template"];
    let labels = &spec["selector"]["matchLabels"];
    assert_eq!(labels, &pod["metadata"]["labels"]);
    let [container] = list(&pod["spec"]["containers"]) else {
        panic!("{pod:?}");
    };

    // The program must accept the container's arguments.
    let words: Vec<_> = list(&container["args"]).iter().map(text).collect();
    let (subcommand, words) = words.split_first().unwrap();
    assert_eq!(*subcommand, "export");
    let arguments = export(words);
    assert!(arguments.listen.ip().is_unspecified(), "probes come from outside");
    let port = named(&container["ports"], "metrics");
    assert_eq!(port["containerPort"].as_integer(), Some(arguments.listen.port().into()));

    // The commands in the comment at the beginning of the file must use the same image and the same
    // secret as the manifests.
    let image = text(&container["image"]);
    assert_eq!(image, concat!("sdam:", env!("CARGO_PKG_VERSION")));
    assert!(manifests.contains(&format!("--tag {image} .\n")));
    let volume = named(&pod["spec"]["volumes"], "uri");
    let secret = text(&volume["secret"]["secretName"]);
    let mount = Path::new(text(&named(&container["volumeMounts"], "uri")["mountPath"]));
    let file = arguments.target.uri_file.as_deref().unwrap();
    let key = file.strip_prefix(mount).unwrap().to_str().unwrap();
    assert!(manifests.contains(&format!("create secret generic {secret} --from-file={key}\n")));

    // The program must serve each path that the manifests request over HTTP.
    let mut asked = vec![];
    for probe in ["livenessProbe", "readinessProbe"] {
        let get = &container[probe]["httpGet"];
        assert_eq!(get["port"], port["name"], "{probe}");
        asked.push(text(&get["path"]));
    }
    let service = document(&documents, "Service");
    assert_eq!(&service["spec"]["selector"], labels);
    let outside = named(&service["spec"]["ports"], "metrics");
    assert_eq!(outside["targetPort"], port["name"]);
    let policy = &document(&documents, "NetworkPolicy")["spec"];
    assert_eq!(&policy["podSelector"]["matchLabels"], labels);
    let [rule] = list(&policy["ingress"]) else {
        panic!("{policy:?}");
    };
    assert_eq!(list(&rule["ports"])[0]["port"], port["name"]);
    assert!(!list(&rule["from"]).is_empty(), "not everyone may ask");
    let monitor = &document(&documents, "ServiceMonitor")["spec"];
    assert_eq!(monitor["selector"]["matchLabels"], service["metadata"]["labels"]);
    for endpoint in list(&monitor["endpoints"]) {
        assert_eq!(endpoint["port"], outside["name"]);
        asked.push(text(&endpoint["path"]));
    }
    let server = Blueprint::standalone().serve().unwrap();
    let program = Running::start(server.uri());
    for path in asked {
        assert_eq!(program.get(path).0, 200, "{path}");
    }
    program.finish();
}

#[test]
fn the_image_contains_the_program_that_it_starts() {
    let steps = read("docker/Dockerfile");
    let starts = |word: &str| -> Vec<_> {
        steps.lines().filter_map(|line| line.strip_prefix(word)).map(str::trim).collect()
    };
    // The image contains nothing but the program, so the program must be linked statically.
    assert!(starts("FROM")[0].ends_with("-alpine AS build"));
    assert_eq!(starts("FROM")[1], "scratch");
    assert!(starts("RUN")[1].contains("--package sdam-cli"));
    let [entry] = starts("ENTRYPOINT")[..] else {
        panic!("{steps}");
    };
    let program: Vec<String> = serde_json::from_str(entry).unwrap();
    assert!(starts("COPY").iter().any(|copy| copy.ends_with(&*program[0])), "{program:?}");
    let user: u32 = starts("USER")[0].split(':').next().unwrap().parse().unwrap();
    assert_ne!(user, 0);
}

#[test]
fn a_collector_scrapes_the_address_at_which_the_program_serves() {
    let file = read("opentelemetry/collector.yaml");
    let documents = Yaml::load_from_str(&file).unwrap();
    let [collector] = &documents[..] else {
        panic!("{documents:?}");
    };
    let [scrape] = list(&collector["receivers"]["prometheus"]["config"]["scrape_configs"]) else {
        panic!("{collector:?}");
    };
    // The alerts are about jobs whose names begin with sdam.
    assert!(text(&scrape["job_name"]).starts_with("sdam"));
    let targets = list(&list(&scrape["static_configs"])[0]["targets"]);
    let served = export(&["mongodb://localhost"]).listen.to_string();
    assert_eq!(targets.iter().map(text).collect::<Vec<_>>(), [served]);
    let pipeline = &collector["service"]["pipelines"]["metrics"];
    for kind in ["receivers", "exporters"] {
        for name in list(&pipeline[kind]).iter().map(text) {
            assert!(collector[kind].as_mapping_get(name).is_some(), "{kind}: {name}");
        }
    }
}

/// The exporter has neither TLS nor authentication, so it listens on loopback, where a reverse
/// proxy reaches it.
#[test]
fn a_reverse_proxy_with_tls_and_passwords_passes_on_some_pages() {
    let listen = export(&["mongodb://localhost"]).listen;
    assert!(listen.ip().is_loopback(), "{listen}");
    let unit = read("systemd/sdam-export.service");
    assert!(unit.contains(&format!("--listen {listen} ")), "{unit}");
    let configuration = read("nginx/sdam-export.conf");
    let lines: Vec<_> = configuration.lines().map(str::trim).collect();
    for needed in ["listen 9217 ssl;", "auth_basic \"sdam export\";", "location / { return 404; }"]
    {
        assert!(lines.contains(&needed), "{needed}");
    }
    let server = Blueprint::standalone().serve().unwrap();
    let program = Running::start(server.uri());
    program.get_until("/healthz", 200);
    let pages: Vec<_> = lines.iter().filter_map(|it| it.strip_prefix("location = ")).collect();
    assert_eq!(pages.len(), 3, "{pages:?}");
    for page in pages {
        let (path, target) = page.split_once(" { proxy_pass http://").unwrap();
        assert_eq!(target, format!("{listen}; }}"));
        assert_eq!(program.get(path).0, 200, "{path}");
    }
    program.finish();
}

/// Checks the release workflow, because every action in it can change the archives that users run.
#[test]
fn the_workflow_of_a_release_runs_named_versions_with_least_rights() {
    let file = read("../.github/workflows/release.yml");
    let documents = Yaml::load_from_str(&file).unwrap();
    let workflow = &documents[0];
    assert!(workflow["permissions"].as_mapping().unwrap().is_empty(), "of all jobs");
    let rights = |job: &str| {
        let rights = workflow["jobs"][job]["permissions"].as_mapping().unwrap();
        let rights = rights.iter().map(|(key, value)| format!("{}: {}", text(key), text(value)));
        rights.collect::<Vec<_>>()
    };
    assert_eq!(rights("program"), ["contents: read"]);
    assert_eq!(rights("publish"), ["contents: write", "id-token: write", "attestations: write"]);
    let mut actions = vec![];
    for job in ["program", "publish"] {
        for step in list(&workflow["jobs"][job]["steps"]) {
            if let Some(action) = step.as_mapping_get("uses") {
                let (name, commit) = text(action).split_once('@').unwrap();
                let is_commit =
                    commit.len() == 40 && commit.chars().all(|it| it.is_ascii_hexdigit());
                assert!(is_commit, "{name}@{commit}");
                actions.push(name);
            }
            if let Some(command) = step.as_mapping_get("run").map(text)
                && command.contains("cargo install")
            {
                assert!(
                    command.contains(" --version ") && command.contains(" --locked"),
                    "{command}"
                );
            }
        }
    }
    assert!(actions.contains(&"actions/attest-build-provenance"), "{actions:?}");
}

/// Returns the lines of a section of HAProxy's configuration, without comments.
fn section<'c>(configuration: &'c str, name: &str) -> Vec<&'c str> {
    let lines = configuration.lines().filter(|line| !line.trim_start().starts_with('#'));
    let lines = lines.skip_while(|line| *line != name).skip(1);
    lines.take_while(|line| line.starts_with(' ')).map(str::trim).collect()
}

#[test]
fn haproxy_asks_the_program_which_members_have_the_role() {
    let configuration = read("haproxy/haproxy.cfg");
    let defaults = section(&configuration, "defaults");
    let checks = defaults.iter().find_map(|line| line.strip_prefix("default-server ")).unwrap();
    let listen = export(&["mongodb://localhost"]).listen;
    let place = format!("check addr {} port {} ", listen.ip(), listen.port());
    assert!(checks.starts_with(&place), "{checks}");
    assert!(checks.ends_with(" on-marked-down shutdown-sessions"), "{checks}");
    assert!(defaults.contains(&"option httpchk"), "{defaults:?}");

    let set = Blueprint::replica_set(3).serve().unwrap();
    let program = Running::start(set.uri());
    program.get_until("/healthz?read=secondary", 200);
    let options = Options::parse(set.uri()).unwrap();
    for (name, members) in [("listen primary", 1), ("listen secondaries", 2)] {
        let lines = section(&configuration, name);
        let servers: Vec<Vec<_>> = lines
            .iter()
            .filter_map(|line| Some(line.strip_prefix("server ")?.split(' ').collect()))
            .collect();
        // A check sends the name of HAProxy's server, so this name must be the address of the
        // member.
        assert!(servers.len() == 3 && servers.iter().all(|it| it[0] == it[1]), "{servers:?}");
        assert!(lines.contains(&"http-check expect status 200"), "{lines:?}");
        let uri = lines.iter().find_map(|it| it.strip_prefix("http-check send meth GET uri-lf "));
        let has_role = |member: &&ServerAddress| {
            program.get(&uri.unwrap().replace("%[srv_name]", member.as_str())).0 == 200
        };
        // One secondary is readable before the other one has been checked.
        wait_until(name, || options.seeds.iter().filter(has_role).count() == members);
    }
    program.finish();

    // HAProxy looks up all names, so use addresses.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("haproxy.cfg");
    let local = [0, 1, 2].iter().fold(configuration, |text, member| {
        text.replace(&format!("db-{member}.example.com"), &format!("127.0.0.{}", member + 1))
    });
    fs::write(&file, local).unwrap();
    match Command::new("haproxy").args(["-c", "-f"]).arg(&file).output() {
        Ok(checked) => assert!(checked.status.success(), "{checked:?}"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{error}"),
    }
}
