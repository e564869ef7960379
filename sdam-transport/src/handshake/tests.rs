use bson::{Bson, Document, doc};

use super::{
    environment::{OperatingSystem, pretty_name},
    *,
};

const VARIABLES_OF_LAMBDA: [(&str, &str); 3] = [
    ("AWS_EXECUTION_ENV", "AWS_Lambda_java8"),
    ("AWS_REGION", "us-east-2"),
    ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "1024"),
];

fn environment(variables: &[(&str, &str)]) -> Environment {
    variables.iter().fold(Environment::default(), |environment, (name, value)| {
        environment.with_variable(name, value)
    })
}

fn metadata(environment: &Environment) -> ClientMetadata {
    ClientMetadata::new("driver", "0.1", environment).unwrap()
}

fn decode(metadata: &ClientMetadata) -> Document {
    let bytes = metadata.encode();
    assert!(bytes.len() <= ClientMetadata::MAX_LENGTH, "{} bytes", bytes.len());
    Document::from_reader(&*bytes).unwrap()
}

/// The environment variables determine `client.env` (O-22 to O-26; handshake prose test 1).
#[test]
fn env_is_derived_from_the_variables() {
    let check = |variables: &[(&str, &str)], expected: Option<Document>| {
        let environment = environment(variables);
        let client = decode(&metadata(&environment));
        let env = client.get("env").cloned();
        assert_eq!(env, expected.clone().map(Bson::from), "{variables:?}");
        // The same variables decide whether monitors poll (F-21).
        let faas = expected.is_some_and(|env| env.contains_key("name"));
        assert_eq!(environment.is_faas(), faas, "{variables:?}");
        assert_eq!(metadata(&environment).is_faas(), faas, "{variables:?}");
    };
    check(&[], None);
    // The nine sets of the prose test, in its order.
    let lambda = doc! { "name": "aws.lambda", "memory_mb": 1024, "region": "us-east-2" };
    check(&VARIABLES_OF_LAMBDA, Some(lambda.clone()));
    check(&[("FUNCTIONS_WORKER_RUNTIME", "node")], Some(doc! { "name": "azure.func" }));
    check(
        &[
            ("K_SERVICE", "servicename"),
            ("FUNCTION_MEMORY_MB", "1024"),
            ("FUNCTION_TIMEOUT_SEC", "60"),
            ("FUNCTION_REGION", "us-central1"),
        ],
        Some(doc! {
            "name": "gcp.func", "timeout_sec": 60, "memory_mb": 1024, "region": "us-central1",
        }),
    );
    check(
        &[("VERCEL", "1"), ("VERCEL_REGION", "cdg1")],
        Some(doc! { "name": "vercel", "region": "cdg1" }),
    );
    check(&[("AWS_EXECUTION_ENV", "AWS_Lambda_java8"), ("FUNCTIONS_WORKER_RUNTIME", "node")], None);
    check(
        &[("AWS_EXECUTION_ENV", "AWS_Lambda_java8"), ("AWS_REGION", &"a".repeat(512))],
        Some(doc! { "name": "aws.lambda" }),
    );
    check(
        &[("AWS_EXECUTION_ENV", "AWS_Lambda_java8"), ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "big")],
        Some(doc! { "name": "aws.lambda" }),
    );
    check(&[("AWS_EXECUTION_ENV", "EC2")], None);
    let [execution, region, memory] = VARIABLES_OF_LAMBDA;
    let kubernetes = ("KUBERNETES_SERVICE_HOST", "1");
    let mut contained = lambda;
    contained.insert("container", doc! { "orchestrator": "kubernetes" });
    check(&[execution, region, memory, kubernetes], Some(contained));
    // These cases are not in the prose test.
    check(&[("AWS_LAMBDA_RUNTIME_API", "127.0.0.1:9001")], Some(doc! { "name": "aws.lambda" }));
    check(
        &[("FUNCTION_NAME", "f"), ("FUNCTION_TIMEOUT_SEC", "1.5")],
        Some(doc! { "name": "gcp.func" }),
    );
    check(&[execution, region, memory, ("VERCEL", "1")], Some(doc! { "name": "vercel" }));
    check(&[("VERCEL", "1"), ("K_SERVICE", "s")], None);
    check(&[("VERCEL", "")], None);
    check(&[kubernetes], Some(doc! { "container": { "orchestrator": "kubernetes" } }));
    let mut docker = environment(&[kubernetes]);
    docker.docker = true;
    let both = doc! { "container": { "runtime": "docker", "orchestrator": "kubernetes" } };
    assert_eq!(decode(&metadata(&docker)).get_document("env").unwrap(), &both);
}

#[test]
fn fields_that_do_not_fit_are_omitted_in_the_specified_order() {
    // The document has at most 512 bytes (O-21).
    let check = |platform: usize, name: usize, region: usize, kept: &[&str]| {
        let mut environment =
            environment(&[("VERCEL", "1"), ("VERCEL_REGION", &"r".repeat(region))]);
        environment.os = OperatingSystem::new("Linux");
        environment.os.name = Some("n".repeat(name).into());
        let metadata = metadata(&environment).with_platform(&"p".repeat(platform)).unwrap();
        let client = decode(&metadata);
        let env = client.get_document("env").ok();
        let os = client.get_document("os").unwrap();
        let has = |part: &str| match part {
            "region" => env.is_some_and(|env| env.contains_key("region")),
            "os.name" => os.contains_key("name"),
            "env" => env.is_some_and(|env| env.get_str("name").unwrap() == "vercel"),
            "platform" => client.get_str("platform").is_ok_and(|own| own.len() == platform),
            other => panic!("{other}"),
        };
        for part in ["region", "os.name", "env", "platform"] {
            assert_eq!(
                has(part),
                kept.contains(&part),
                "{part} of {platform}, {name}, {region}: {client}"
            );
        }
        assert_eq!(os.get_str("type").unwrap(), "Linux");
    };
    check(10, 10, 10, &["region", "os.name", "env", "platform"]);
    check(10, 10, 500, &["os.name", "env", "platform"]);
    check(10, 500, 10, &["env", "platform"]);
    check(400, 10, 10, &["platform"]);
    check(600, 10, 10, &[]);
}

#[test]
fn a_platform_is_cut_to_fill_the_document_exactly() {
    // The document has at most 512 bytes (O-21).
    let base = metadata(&Environment::default());
    let cut = base.clone().with_platform(&"p".repeat(1000)).unwrap();
    assert_eq!(cut.encode().len(), ClientMetadata::MAX_LENGTH);
    // The platform is not truncated inside a character.
    let cut = base.with_platform(&"\u{20ac}".repeat(1000)).unwrap();
    let platform = decode(&cut).get_str("platform").unwrap().to_owned();
    assert!(platform.chars().all(|c| c == '\u{20ac}'));
    assert!(cut.encode().len() > ClientMetadata::MAX_LENGTH - 3);
}

/// The longest accepted strings fit, together with any other fields (O-21).
#[test]
fn the_document_never_exceeds_its_limit() {
    let long = "\u{20ac}".repeat(42) + "ab";
    assert_eq!(long.len(), 128);
    let mut environment = environment(&VARIABLES_OF_LAMBDA);
    environment.docker = true;
    environment.os = OperatingSystem::new(&long);
    environment.os.version = Some(long.as_str().into());
    for (name, _) in VARIABLES_OF_LAMBDA {
        environment = environment.with_variable(name, &long.repeat(9));
    }
    let mut metadata = ClientMetadata::new(&long, &long, &environment)
        .unwrap()
        .with_platform(&long)
        .unwrap()
        .with_application(&long)
        .unwrap();
    for number in 0..20 {
        let library = DriverInfo::new(&number.to_string()).with_version(&long);
        metadata.append(library.with_platform(&long)).unwrap();
        let client = decode(&metadata);
        let driver = client.get_document("driver").unwrap();
        assert!(driver.get_str("name").unwrap().starts_with(&long));
        assert!(driver.get_str("version").unwrap().starts_with(&long));
        let application = client.get_document("application").unwrap();
        assert_eq!(application.get_str("name").unwrap(), long);
    }
}

/// Strings that are too long or contain the delimiter are refused (O-21, O-27; metadata update
/// prose test 11).
#[test]
fn invalid_texts_are_refused_with_the_name_of_the_option() {
    let base = metadata(&Environment::default());
    let long = "a".repeat(129);
    let check = |result: Result<ClientMetadata, ConfigError>, option: &str, shown: &str| {
        let error = result.unwrap_err();
        assert_eq!(error.option(), option);
        assert_eq!(error.to_string(), format!("`{option}`{shown}"));
    };
    let new = |name: &str, version| ClientMetadata::new(name, version, &Environment::default());
    let too_long = ": it has 129 bytes and may have at most 128; shorten it";
    check(base.clone().with_application(&long), "appName", too_long);
    check(new(&long, "1"), "driver name", too_long);
    check(new("driver", &long), "driver version", too_long);
    let empty = ": it must not be empty; set it or leave it out";
    check(new("", "1"), "driver name", empty);
    check(new("driver", ""), "driver version", empty);
    let delimiter = " is `a|b`: it must not contain `|`; use another character";
    check(base.clone().with_platform("a|b"), "platform", delimiter);
    let library =
        DriverInfo::new("framework").with_version("2.0").with_platform("Framework Platform");
    for (library, option) in [
        (DriverInfo::new("frame|work"), "driver name"),
        (library.clone().with_version("2|0"), "driver version"),
        (library.with_platform("Framework|Platform"), "platform"),
    ] {
        let mut metadata = base.clone();
        let error = metadata.append(library).unwrap_err();
        assert_eq!(error.option(), option);
        assert_eq!(metadata, base);
    }
}

#[test]
fn the_name_of_the_distribution_is_read_without_quotes() {
    let check = |file, expected| assert_eq!(pretty_name(file), expected, "{file}");
    check("NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n", "Debian GNU/Linux 12");
    check("PRETTY_NAME=Alpine\r\n", "Alpine");
    check("NAME=x\n", "");
    check("", "");
}

#[test]
fn the_environment_of_this_process_makes_a_valid_document() {
    let environment = Environment::from_process();
    let client = decode(&metadata(&environment));
    let os = client.get_document("os").unwrap();
    assert!(!os.get_str("type").unwrap().is_empty());
    assert_eq!(os.get_str("architecture").unwrap(), std::env::consts::ARCH);
}
