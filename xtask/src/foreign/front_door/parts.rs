//! Servers, proxies, certificates and DNS records for the cases.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;

use bson::doc;
use sdam_live::{
    Certificates, Dns, Error, Mongod, Record, ServerCertificate, ServerTls, Socks, Version,
};

/// The domain whose names resolve to the loopback address.
pub(super) const DOMAIN: &str = "sdam.example";

/// The servers, proxies and DNS that the cases use.
pub(super) struct Parts {
    pub(super) dns: Dns,
    names: BTreeMap<String, String>,
    _certificates: Arc<Certificates>,
    _servers: Vec<Mongod>,
    _proxies: [Socks; 2],
    _silent: TcpListener,
}

impl Parts {
    /// Starts all parts. The servers start concurrently.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if a server program is missing on this machine.
    pub(super) fn start() -> Result<Self, Error> {
        let certificates = Arc::new(Certificates::create()?);
        let mut names: BTreeMap<_, _> = files(&certificates)?.into();
        let mut servers = Vec::new();
        for (name, server) in start_servers(&certificates) {
            let server = server?;
            names.insert(name, server.host());
            servers.push(server);
        }
        let port =
            |name: &str| names[name].rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        let ports = ["tls", "plain"].map(|name| port(name).unwrap_or_default());
        let dns = Dns::start(records(ports))?;
        let proxies = [Socks::start()?, Socks::start_secured("ada", "pencil")?];
        let proxy = |host: &str, port| format!("proxyHost={host}&proxyPort={port}");
        for (name, socks) in ["socks", "secured"].into_iter().zip(&proxies) {
            let address = socks.address();
            names.insert(name.to_owned(), proxy(&address.ip().to_string(), address.port()));
            names.insert(format!("{name}-address"), address.to_string());
        }
        let (silent, silent_address) = listen()?;
        let (_, dead) = listen()?;
        names.extend([
            ("silent".to_owned(), silent_address.to_string()),
            ("dead".to_owned(), dead.to_string()),
            ("dead-proxy".to_owned(), proxy("127.0.0.1", dead.port())),
            ("tls-by-name".to_owned(), format!("localhost:{}", ports[0])),
        ]);
        Ok(Self {
            dns,
            names,
            _certificates: certificates,
            _servers: servers,
            _proxies: proxies,
            _silent: silent,
        })
    }

    /// Replaces the names in braces with their values.
    pub(super) fn fill(&self, uri: &str) -> String {
        let fill = |uri: String, (name, value): (&String, &String)| {
            uri.replace(&format!("{{{name}}}"), value)
        };
        self.names.iter().fold(uri.to_owned(), fill)
    }

    /// Replaces values that differ between runs with the names in braces.
    pub(super) fn generalize(&self, error: &str) -> String {
        let name = |error: String, (name, value): (&String, &String)| {
            error.replace(value, &format!("{{{name}}}"))
        };
        self.names.iter().fold(error.to_owned(), name)
    }
}

/// Returns the names and paths of the PEM files.
fn files(certificates: &Certificates) -> Result<[(String, String); 5], Error> {
    let empty = certificates.dir().join("empty.pem");
    let failed = |error| Error::Io("writing a file".to_owned(), error);
    fs::write(&empty, "no certificate\n").map_err(failed)?;
    let files = [
        ("authority", certificates.authority()),
        ("other-authority", certificates.other_authority()),
        ("client", certificates.client()),
        ("unknown-client", certificates.unknown_client()),
        ("empty", empty),
    ];
    Ok(files.map(|(name, path)| (name.to_owned(), path.display().to_string())))
}

/// Returns a listener that never answers, and its address.
fn listen() -> Result<(TcpListener, SocketAddr), Error> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let with_address = listener.and_then(|listener| {
        let address = listener.local_addr()?;
        Ok((listener, address))
    });
    with_address.map_err(|error| Error::Io("listening on loopback".to_owned(), error))
}

/// Starts the servers concurrently, and returns the name and the outcome of each.
fn start_servers(certificates: &Arc<Certificates>) -> Vec<(String, Result<Mongod, Error>)> {
    let tls = || ServerTls::new(certificates);
    let with = |certificate| Some(tls().certificate(certificate));
    let clients = tls().require_client_certificates();
    let settings = [
        ("plain", None),
        ("tls", Some(tls())),
        ("clients", Some(clients.clone())),
        ("clients-1.2", Some(clients.without_tls_1_3())),
        ("expired", with(ServerCertificate::Expired)),
        ("not-yet-valid", with(ServerCertificate::NotYetValid)),
        ("wrong-name", with(ServerCertificate::WrongName)),
        ("unknown-issuer", with(ServerCertificate::UnknownIssuer)),
        ("self-signed", with(ServerCertificate::SelfSigned)),
        ("revoked", with(ServerCertificate::Revoked)),
    ];
    thread::scope(|scope| {
        let started = settings.map(|(name, tls)| (name, scope.spawn(move || start(tls.as_ref()))));
        let joined = started.map(|(name, server)| {
            let panicked = |_| Err(Error::State("a thread has panicked".to_owned()));
            (name.to_owned(), server.join().unwrap_or_else(panicked))
        });
        joined.into()
    })
}

/// Starts a server with a user for the client certificate.
fn start(tls: Option<&ServerTls>) -> Result<Mongod, Error> {
    let Some(tls) = tls else {
        return Mongod::start(Version::V6_0);
    };
    let server = Mongod::start_tls(Version::V6_0, tls, &[])?;
    let user = doc! { "createUser": Certificates::CLIENT, "roles": [] };
    server.run_command("$external", user)?;
    Ok(server)
}

fn records([tls, plain]: [u16; 2]) -> Vec<Record> {
    let name = |name: &str| format!("{name}.{DOMAIN}");
    let srv = |service: &str, host: &str, port| {
        Record::srv(&format!("_{service}._tcp.{}", name(host)), &name("db"), port)
    };
    let mut records = vec![
        srv("mongodb", "cluster", tls),
        srv("mongodb", "plain", plain),
        srv("custom", "custom", tls),
        srv("mongodb", "two", tls),
        Record::srv(&format!("_mongodb._tcp.{}", name("two")), &name("other"), tls),
        Record::srv(&format!("_mongodb._tcp.{}", name("outside")), "db.other.example", 27_017),
        srv("mongodb", "txt", tls),
        Record::txt(&name("txt"), ["authSource=", "things"]),
        srv("mongodb", "bad-txt", tls),
        Record::txt(&name("bad-txt"), ["ssl=false"]),
        srv("mongodb", "two-txt", tls),
        Record::txt(&name("two-txt"), ["authSource=things"]),
        Record::txt(&name("two-txt"), ["replicaSet=rs0"]),
    ];
    // Together, these records are too long for a DNS answer over UDP.
    let long = "x".repeat(60);
    records.extend((0..40).map(|number| {
        let service = format!("_mongodb._tcp.{}", name("long"));
        Record::srv(&service, &name(&format!("{long}{number}")), tls)
    }));
    records
}
