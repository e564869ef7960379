//! Tests the manifests of `deploy/kubernetes` with the program that they start.

use std::{fs, path::Path};

use saphyr::{LoadableYamlNode, Yaml};

use super::Running;
use crate::cli::tests::export;
use sdam_sim::serve::Builder;

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
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/kubernetes/sdam-export.yaml");
    let manifests = fs::read_to_string(path).unwrap();
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
    let monitor = &document(&documents, "ServiceMonitor")["spec"];
    assert_eq!(monitor["selector"]["matchLabels"], service["metadata"]["labels"]);
    for endpoint in list(&monitor["endpoints"]) {
        assert_eq!(endpoint["port"], outside["name"]);
        asked.push(text(&endpoint["path"]));
    }
    let server = Builder::standalone().start().unwrap();
    let program = Running::start(server.uri());
    for path in asked {
        assert_eq!(program.get(path).0, 200, "{path}");
    }
    program.finish();
}

#[test]
fn the_image_contains_the_program_that_it_starts() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/docker/Dockerfile");
    let steps = fs::read_to_string(path).unwrap();
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
