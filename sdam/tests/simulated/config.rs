//! Tests errors and warnings about connection strings, which are reported before anything connects.

use sdam::options::Warning;
use sdam_core::options::TlsOptions;
use sdam_transport::{
    layers::Guards,
    stream::ByteStream,
    tls::{Tls, TlsProvider},
};

use super::*;

/// The only server, which refuses every connection.
#[derive(Debug)]
struct Refusing(Servers);

impl Refusing {
    fn new() -> Self {
        let clock = ManualClock::default();
        Self(Servers::new(clock, Server::refusing("closed")))
    }

    fn backend(&self) -> Backend {
        let clock = ManualClock::default();
        Backend::new(Arc::new(clock), Arc::new(self.0.clone()), 1)
    }

    /// Returns the number of attempted connections.
    fn attempts(&self) -> usize {
        self.0.answered(&ServerAddress::new("a", 27017)).len()
    }
}

/// Polls each task once.
fn poll(tasks: &HeldTasks) {
    for task in tasks.take() {
        let _unfinished = task.now_or_never();
    }
}

/// Starts each kind of topology with `options`; returns the error and the number of connections.
fn attempts(options: &str) -> [(Option<ConfigError>, usize); 2] {
    let builder = || Topology::builder(&format!("mongodb://a/?{options}")).unwrap();
    let (server, tasks) = (Refusing::new(), HeldTasks::default());
    let started = builder().start(Runtime::new(server.backend(), Arc::new(tasks.clone())));
    poll(&tasks);
    let threaded = (started.err(), server.attempts());

    let server = Refusing::new();
    let mut scanned = builder().scan(server.backend());
    if let Ok(topology) = &mut scanned {
        let _unfinished = topology.scan().now_or_never();
    }
    [threaded, (scanned.err(), server.attempts())]
}

/// Asserts that `option` prevents both kinds of topology from starting and from connecting.
#[track_caller]
fn check_refused(options: &str, option: &str) {
    for (error, connections) in attempts(options) {
        let Some(error) = error else {
            unreachable!("{options}: {error:?}");
        };
        assert_eq!(error.option(), option, "{options}: {error}");
        assert!(!error.remedy().is_empty());
        assert_eq!(connections, 0, "{options}");
    }
}

const TLS: [&str; 8] = [
    "tls",
    "ssl",
    "tlsAllowInvalidCertificates",
    "tlsAllowInvalidHostnames",
    "tlsDisableCertificateRevocationCheck",
    "tlsDisableOCSPEndpointCheck",
    "tlsInsecure",
    "sslVerifyCertificate",
];

#[test]
fn both_kinds_of_topology_connect_without_tls_or_a_proxy() {
    // Control: if topologies never connected, the tests below would prove nothing.
    for options in ["", "tls=false", "ssl=false&compressors=x&foo=1"] {
        for (error, connections) in attempts(options) {
            assert_eq!((error, connections), (None, 1), "{options}");
        }
    }
}

#[test]
fn malformed_tls_and_proxy_values_are_refused() {
    // A malformed value of a TLS or proxy option prevents the start (B-35, B-36, V-3).
    for option in TLS {
        for value in ["1", "0", "True", "TRUE", "yes", "on", "x", "", "true%20"] {
            check_refused(&format!("{option}={value}"), option);
        }
    }
    for option in
        ["tlsCAFile", "tlsCertificateKeyFile", "tlsCertificateKeyFilePassword", "proxyHost"]
    {
        check_refused(&format!("{option}="), option);
    }
    for value in ["x", "0", "65536", "-1", ""] {
        check_refused(&format!("proxyHost=b&proxyPort={value}"), "proxyPort");
    }
    check_refused("tls=1&tls=false", "tls");
    check_refused("tls=false&ssl=1", "ssl");
}

#[test]
fn unsupported_tls_and_proxy_options_are_refused() {
    for option in TLS.into_iter().filter(|option| !option.starts_with("sslVerify")) {
        check_refused(&format!("{option}=true"), "tls");
    }
    check_refused("sslVerifyCertificate=true", "sslVerifyCertificate");
    check_refused("tlsCAFile=ca.pem", "tls");
    check_refused("tls=false&tlsCertificateKeyFile=a", "tls");
    check_refused("tlsCertificateKeyFilePassword=a", "tlsCertificateKeyFilePassword");
    check_refused("proxyHost=b", "proxyHost");
    check_refused("proxyHost=b&proxyPort=1080", "proxyHost");
    check_refused("proxyHost=b&proxyUsername=c&proxyPassword=d", "proxyHost");
    let [(error, _), _] = attempts("tls=true");
    assert_eq!(
        error.unwrap().to_string(),
        "`tls` is `true`: the runtime has no TLS library; enable the feature `tls` of sdam, or \
         set `Backend::tls` to a library of your own; leave it out only if plain text is acceptable"
    );
    let [(error, _), _] = attempts("tls=1");
    // A program prints this if its `fn main() -> Result<(), ConfigError>` fails.
    assert_eq!(
        format!("{:?}", error.unwrap()),
        "`tls` is `1`: it must be `true` or `false`; correct the value, or leave the option out if \
         nothing needs it"
    );
    let [_, (error, _)] = attempts("proxyHost=b");
    assert_eq!(
        error.unwrap().to_string(),
        "`proxyHost` is `b`: the runtime's transport cannot connect through a proxy; leave it out, \
         or let the transport connect through the proxy itself and say so by `Transport::guards`; \
         around another transport, use `Wrapped`"
    );
}

#[test]
fn what_needs_sockets_is_refused_if_the_transport_has_none() {
    let server = Refusing::new();
    let builder = || Topology::builder("mongodb://a/").unwrap();
    let table =
        [("a:27017", "b:27017")].map(|(from, to)| (from.parse().unwrap(), to.parse().unwrap()));
    let translated = builder().translate(AddressTable::from_iter(table));
    let error = translated.scan(server.backend()).unwrap_err();
    assert_eq!(error.option(), "translate");
    assert!(error.remedy().contains("`Wrapped`"), "{error}");
    let timed =
        builder().options(|options| options.tcp_user_timeout = Some(Duration::from_secs(30)));
    let error = timed.scan(server.backend()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`tcpUserTimeout` is `30s`: the runtime's transport has no sockets whose options could be \
         set; leave it out, or set it on the sockets of the transport itself; around another \
         transport, use `Wrapped`"
    );
    assert_eq!(server.attempts(), 0);
}

/// A TLS library that is given to a transport which cannot use one.
#[derive(Debug)]
struct Library;

impl TlsProvider for Library {
    fn tls(&self, _: &TlsOptions) -> Result<Arc<dyn Tls>, ConfigError> {
        Ok(Arc::new(Library))
    }
}

#[async_trait]
impl Tls for Library {
    async fn negotiate(
        &self,
        stream: Box<dyn ByteStream>,
        _: &ServerAddress,
    ) -> Result<Box<dyn ByteStream>, Error> {
        Ok(stream)
    }
}

/// Returns the error from starting a topology whose transport cannot use the TLS library that it
/// was given.
fn refusal(options: &str) -> ConfigError {
    let server = Refusing::new();
    let mut backend = server.backend();
    backend.tls = Some(Arc::new(Library));
    let builder = Topology::builder(&format!("mongodb://a/?{options}")).unwrap();
    let error = builder.scan(backend).unwrap_err();
    assert_eq!(server.attempts(), 0);
    error
}

#[test]
fn mongodb_x509_without_tls_or_a_certificate_of_the_client_is_refused() {
    for (options, option, message) in [
        (
            "",
            "authMechanism",
            "`authMechanism` is `MONGODB-X509`: it takes the user from the client's certificate, \
             and connections are not encrypted; add tls=true and tlsCertificateKeyFile, or use \
             SCRAM-SHA-256",
        ),
        (
            "&tls=true",
            "tlsCertificateKeyFile",
            "`tlsCertificateKeyFile`: MONGODB-X509 takes the user from the client's certificate, \
             and there is none; name the file of the certificate and its key",
        ),
    ] {
        let error = refusal(&format!("authMechanism=MONGODB-X509{options}"));
        assert_eq!((error.option(), &*error.to_string()), (option, message));
    }
    // Control: with a certificate, only the transport is still a reason to refuse the start.
    let error = refusal("authMechanism=MONGODB-X509&tls=true&tlsCertificateKeyFile=a");
    assert!(error.to_string().contains("no byte streams"), "{error}");
}

/// A transport that itself negotiates TLS and connects through a proxy.
#[derive(Debug)]
struct Guarded(Arc<dyn Transport>);

#[async_trait]
impl Transport for Guarded {
    async fn connect(
        &self,
        target: &ServerAddress,
        deadline: Option<Instant>,
    ) -> Result<Box<dyn Connection>, Error> {
        self.0.connect(target, deadline).await
    }

    fn guards(&self) -> Guards {
        Guards::NONE.with_tls().with_proxy()
    }
}

#[test]
fn tls_and_a_proxy_are_accepted_if_the_transport_has_them() {
    let server = Refusing::new();
    let mut backend = server.backend();
    backend.transport = Arc::new(Guarded(backend.transport));
    let builder = Topology::builder("mongodb://a/?tls=true&proxyHost=b").unwrap();
    let mut topology = builder.scan(backend).unwrap();
    let _unfinished = topology.scan().now_or_never();
    assert_eq!(server.attempts(), 1);
    // The transport would ignore the other options of TLS.
    for option in [
        "tlsCAFile=ca.pem",
        "tlsCertificateKeyFile=a",
        "tlsAllowInvalidCertificates=true",
        "tlsAllowInvalidHostnames=true",
        "tlsDisableCertificateRevocationCheck=true",
        "tlsDisableOCSPEndpointCheck=true",
    ] {
        let mut backend = server.backend();
        backend.transport = Arc::new(Guarded(backend.transport));
        let builder = Topology::builder(&format!("mongodb://a/?{option}&proxyHost=b")).unwrap();
        let error = builder.scan(backend).unwrap_err();
        assert_eq!(Some(error.option()), option.split('=').next(), "{error}");
    }
    assert_eq!(server.attempts(), 1);
}

/// Starts a topology by calling `start`, and checks the warnings that `start` returns and those in
/// the events.
fn check_mode(
    options: &Options,
    expected: &[&str],
    start: impl FnOnce(TopologyBuilder) -> Vec<Warning>,
) {
    let (sink, mut events) = unbounded();
    let warnings = start(TopologyBuilder::new(options.clone()).sink(sink));
    let warnings = warnings.iter().map(ToString::to_string);
    assert_eq!(warnings.collect::<Vec<_>>(), expected);
    let events = drain(&mut events);
    assert_eq!(events[0].kind, EventKind::TopologyOpening);
    let warned = events.iter().filter_map(|event| match &event.kind {
        EventKind::ConfigWarning(warning) => Some(warning.to_string()),
        _ => None,
    });
    assert_eq!(warned.collect::<Vec<_>>(), expected);
}

/// Asserts that each kind of topology reports exactly these warnings, in this order.
fn check(options: &Options, multi: &[&str], single: &[&str]) {
    check_mode(options, multi, |builder| {
        let tasks = HeldTasks::default();
        let runtime = Runtime::new(Refusing::new().backend(), Arc::new(tasks.clone()));
        let topology: Topology = builder.start(runtime).unwrap();
        poll(&tasks);
        topology.warnings().to_vec()
    });
    check_mode(options, single, |builder| {
        let topology = builder.scan(Refusing::new().backend()).unwrap();
        topology.warnings().to_vec()
    });
}

#[test]
fn warnings_about_the_connection_string_reach_the_topology_and_the_events() {
    // Unknown, repeated and empty options cause warnings (B-34).
    let options = Options::parse(
        "mongodb://a,a/?foo=1&connectTimeoutMS=x&wtimeout=5&replicaSet=x&replicaSet=y",
    );
    let expected = [
        "`host` is `a`: it is named more than once; it counts once",
        "`foo`: there is no such option; it is ignored",
        "`connectTimeoutMS` is `x`: it must be a whole number, at least 0; the option is ignored",
        "`wtimeout` is `5`: this name is deprecated; it is read as `wTimeoutMS`",
        "`replicaSet` is `y`: it is given more than once; `y` is used",
    ];
    check(&options.unwrap(), &expected, &expected);
}

#[test]
fn each_mode_warns_about_options_without_effect_in_it() {
    // Some options have an effect in one mode only (B-15, B-20).
    let options = Options::parse("mongodb://a/?serverMonitoringMode=poll");
    check(
        &options.unwrap(),
        &[],
        &["`serverMonitoringMode` is `poll`: only clients with background monitors have it; the \
           option is ignored"],
    );
    let mut options = Options::parse("mongodb://a").unwrap();
    options.server_selection_try_once = Some(false);
    check(
        &options,
        &["`serverSelectionTryOnce` is `false`: only single-threaded clients have it; the option \
           is ignored"],
        &[],
    );
}

#[test]
fn a_topology_without_seeds_warns() {
    // A topology without seeds warns that there are none (B-4).
    let expected = ["`seeds`: there are none; no server will ever be found"];
    check(&Options::new(Vec::new()), &expected, &expected);
}
