//! The settings and faults with which both clients connect.

/// The expected behaviour of one client.
#[derive(Clone, Copy, Debug)]
pub(super) enum Expected {
    Connects,
    /// It fails with an error that contains these words.
    Fails(&'static [&'static str]),
}

use Expected::{Connects, Fails};

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) name: &'static str,
    /// The connection string. A name in braces stands for a server or a file.
    pub(super) uri: &'static str,
    pub(super) ours: Expected,
    pub(super) theirs: Expected,
    /// PyMongo's behaviour if the clients disagree; empty if they agree.
    pub(super) why: &'static str,
}

const fn connects(name: &'static str, uri: &'static str) -> Case {
    Case { name, uri, ours: Connects, theirs: Connects, why: "" }
}

/// Both fail: with words of our error, and of PyMongo's.
const fn fails(
    name: &'static str,
    uri: &'static str,
    ours: &'static [&'static str],
    theirs: &'static [&'static str],
) -> Case {
    Case { name, uri, ours: Fails(ours), theirs: Fails(theirs), why: "" }
}

/// Our client refuses to connect, and PyMongo connects; `why` explains why that is worse.
const fn refused(
    name: &'static str,
    uri: &'static str,
    ours: &'static [&'static str],
    why: &'static str,
) -> Case {
    Case { name, uri, ours: Fails(ours), theirs: Connects, why }
}

/// TLS of servers.
pub(super) const SERVERS: &[Case] = &[
    connects("plain text to a server without TLS", "mongodb://{plain}/"),
    connects("TLS, the authority is trusted", "mongodb://{tls}/?tls=true&tlsCAFile={authority}"),
    connects(
        "the server's name instead of its address",
        "mongodb://{tls-by-name}/?tls=true&tlsCAFile={authority}",
    ),
    connects("a TLS option without `tls`", "mongodb://{tls}/?tlsCAFile={authority}"),
    fails(
        "plain text to a server with TLS",
        "mongodb://{tls}/",
        &["closed"],
        &["connection closed"],
    ),
    fails(
        "TLS to a server without it",
        "mongodb://{plain}/?tls=true&tlsCAFile={authority}",
        &["tls"],
        &["SSL handshake failed"],
    ),
    fails(
        "the authority is not trusted",
        "mongodb://{tls}/?tls=true&tlsCAFile={other-authority}",
        &["tls", "unknown authority"],
        &["CERTIFICATE_VERIFY_FAILED"],
    ),
    fails(
        "no authority is named",
        "mongodb://{tls}/?tls=true",
        &["tls", "authorit"],
        &["CERTIFICATE_VERIFY_FAILED"],
    ),
    fails(
        "the authority's file is missing",
        "mongodb://{tls}/?tls=true&tlsCAFile=/nonexistent/ca.pem",
        &["tlsCAFile", "/nonexistent/ca.pem"],
        &["No such file"],
    ),
    fails(
        "the authority's file has no certificate",
        "mongodb://{tls}/?tls=true&tlsCAFile={empty}",
        &["tlsCAFile"],
        &["no certificate or crl found"],
    ),
    fails(
        "the certificate has expired",
        "mongodb://{expired}/?tls=true&tlsCAFile={authority}",
        &["tls", "expired"],
        &["certificate has expired"],
    ),
    fails(
        "the certificate is not yet valid",
        "mongodb://{not-yet-valid}/?tls=true&tlsCAFile={authority}",
        &["tls", "not valid before 2048"],
        &["certificate is not yet valid"],
    ),
    fails(
        "the certificate has another name",
        "mongodb://{wrong-name}/?tls=true&tlsCAFile={authority}",
        &["tls", "name", "other.example"],
        &["IP address mismatch"],
    ),
    fails(
        "another authority has issued the certificate",
        "mongodb://{unknown-issuer}/?tls=true&tlsCAFile={authority}",
        &["tls", "unknown authority"],
        &["CERTIFICATE_VERIFY_FAILED"],
    ),
    fails(
        "the certificate was issued by itself",
        "mongodb://{self-signed}/?tls=true&tlsCAFile={authority}",
        &["tls", "unknown authority"],
        &["self-signed certificate"],
    ),
    connects(
        "expired, and invalid certificates are allowed",
        "mongodb://{expired}/?tls=true&tlsAllowInvalidCertificates=true",
    ),
    connects(
        "another name, and invalid names are allowed",
        "mongodb://{wrong-name}/?tls=true&tlsCAFile={authority}&tlsAllowInvalidHostnames=true",
    ),
    connects(
        "another name, and invalid certificates are allowed",
        "mongodb://{wrong-name}/?tls=true&tlsCAFile={authority}&tlsAllowInvalidCertificates=true",
    ),
    fails(
        "another issuer, and invalid names are allowed",
        "mongodb://{unknown-issuer}/?tls=true&tlsCAFile={authority}&tlsAllowInvalidHostnames=true",
        &["tls", "unknown authority"],
        &["CERTIFICATE_VERIFY_FAILED"],
    ),
    connects(
        "issued by itself, and insecure",
        "mongodb://{self-signed}/?tls=true&tlsInsecure=true",
    ),
    connects("another name, and insecure", "mongodb://{wrong-name}/?tls=true&tlsInsecure=true"),
    fails(
        "insecure, and what that means",
        "mongodb://{tls}/?tls=true&tlsInsecure=true&tlsAllowInvalidCertificates=true",
        &["tlsInsecure", "tlsAllowInvalidCertificates"],
        &["tlsInsecure", "tlsAllowInvalidCertificates"],
    ),
    fails(
        "TLS on and off",
        "mongodb://{tls}/?tls=true&ssl=false",
        &["`tls`", "more than once"],
        &["ssl", "tls"],
    ),
    fails(
        "TLS off, and a file for it",
        "mongodb://{tls}/?tls=false&tlsCAFile={authority}",
        &["tls", "tlsCAFile"],
        &["TLS has not been enabled", "tlscafile"],
    ),
    connects("revoked, and no list says so", "mongodb://{revoked}/?tls=true&tlsCAFile={authority}"),
    fails(
        "invalid certificates, and no OCSP",
        "mongodb://{tls}/?tls=true&tlsAllowInvalidCertificates=true&tlsDisableOCSPEndpointCheck=true",
        &["tlsAllowInvalidCertificates", "tlsDisableOCSPEndpointCheck"],
        &["tlsallowinvalidcertificates", "tlsDisableOCSPEndpointCheck"],
    ),
    refused(
        "a value that TLS does not have",
        "mongodb://{plain}/?tls=maybe",
        &["tls", "maybe"],
        "warns, and sends plain text that the user may have meant to encrypt",
    ),
    refused(
        "an option of TLS that does not exist",
        "mongodb://{plain}/?tlsCRL=/nonexistent/crl.pem",
        &["tlsCRL"],
        "warns, and connects without what the user has asked for",
    ),
];

/// Certificates of clients.
pub(super) const CLIENTS: &[Case] = &[
    connects(
        "the client has a certificate",
        "mongodb://{clients}/?tls=true&tlsCAFile={authority}&tlsCertificateKeyFile={client}",
    ),
    fails(
        "the client has none",
        "mongodb://{clients}/?tls=true&tlsCAFile={authority}",
        &["tls", "certificate"],
        &["connection closed"],
    ),
    fails(
        "the client has none (TLS 1.2)",
        "mongodb://{clients-1.2}/?tls=true&tlsCAFile={authority}",
        &["tls", "certificate"],
        &["connection closed"],
    ),
    fails(
        "another authority has issued it",
        "mongodb://{clients}/?tls=true&tlsCAFile={authority}&tlsCertificateKeyFile={unknown-client}",
        &["tls"],
        &["connection closed"],
    ),
    connects(
        "its key is encrypted",
        "mongodb://{clients}/?tls=true&tlsCAFile={authority}&tlsCertificateKeyFile={encrypted-client}\
         &tlsCertificateKeyFilePassword=pencil",
    ),
    fails(
        "its key is encrypted, and the password is wrong",
        "mongodb://{clients}/?tls=true&tlsCAFile={authority}&tlsCertificateKeyFile={encrypted-client}\
         &tlsCertificateKeyFilePassword=wrong",
        &["tlsCertificateKeyFilePassword"],
        &["Private key"],
    ),
    fails(
        "its key is encrypted, and there is no password",
        "mongodb://{clients}/?tls=true&tlsCAFile={authority}&tlsCertificateKeyFile={encrypted-client}",
        &["tlsCertificateKeyFile", "password"],
        &["Invalid argument"],
    ),
    fails(
        "its file is missing",
        "mongodb://{clients}/?tls=true&tlsCAFile={authority}&tlsCertificateKeyFile=/nonexistent/client.pem",
        &["tlsCertificateKeyFile", "/nonexistent/client.pem"],
        &["No such file"],
    ),
    fails(
        "its file has no key",
        "mongodb://{clients}/?tls=true&tlsCAFile={authority}&tlsCertificateKeyFile={authority}",
        &["tlsCertificateKeyFile", "key"],
        &["Private key"],
    ),
    connects(
        "a password, and no key",
        "mongodb://{tls}/?tls=true&tlsCAFile={authority}&tlsCertificateKeyFilePassword=pencil",
    ),
    connects(
        "its name is a user's (X.509)",
        "mongodb://{clients}/?tls=true&tlsCAFile={authority}&tlsCertificateKeyFile={client}\
         &authMechanism=MONGODB-X509",
    ),
];

/// DNS seed lists. All names in the domain `sdam.example` resolve to the loopback address.
pub(super) const SEED_LISTS: &[Case] = &[
    connects("an SRV record", "mongodb+srv://cluster.sdam.example/?tlsCAFile={authority}"),
    connects("an SRV record, and no TLS", "mongodb+srv://plain.sdam.example/?tls=false"),
    connects("a TXT record with options", "mongodb+srv://txt.sdam.example/?tlsCAFile={authority}"),
    connects(
        "another service",
        "mongodb+srv://custom.sdam.example/?srvServiceName=custom&tlsCAFile={authority}",
    ),
    connects(
        "one of two SRV records",
        "mongodb+srv://two.sdam.example/?srvMaxHosts=1&tlsCAFile={authority}",
    ),
    connects(
        "SRV records that UDP truncates",
        "mongodb+srv://long.sdam.example/?srvMaxHosts=1&tlsCAFile={authority}",
    ),
    fails(
        "TLS is on, and the server has none",
        "mongodb+srv://plain.sdam.example/",
        &["tls"],
        &["SSL handshake failed"],
    ),
    fails(
        "the name has no SRV record",
        "mongodb+srv://missing.sdam.example/",
        &["_mongodb._tcp.missing.sdam.example"],
        &["_mongodb._tcp.missing.sdam.example"],
    ),
    fails(
        "another service without record",
        "mongodb+srv://cluster.sdam.example/?srvServiceName=custom",
        &["_custom._tcp.cluster.sdam.example"],
        &["_custom._tcp.cluster.sdam.example"],
    ),
    fails(
        "the host is in another domain",
        "mongodb+srv://outside.sdam.example/",
        &["db.other.example"],
        &["db.other.example"],
    ),
    fails(
        "a TXT record with an option that it may not have",
        "mongodb+srv://bad-txt.sdam.example/",
        &["TXT"],
        &["supported from DNS"],
    ),
    fails("two TXT records", "mongodb+srv://two-txt.sdam.example/", &["TXT"], &["TXT"]),
    fails("a port", "mongodb+srv://cluster.sdam.example:27017/", &["port"], &["port"]),
    fails("two names", "mongodb+srv://a.sdam.example,b.sdam.example/", &["one"], &["one"]),
    fails(
        "a limit of hosts, and a replica set",
        "mongodb+srv://cluster.sdam.example/?srvMaxHosts=1&replicaSet=rs0",
        &["srvMaxHosts", "replicaSet"],
        &["srvMaxHosts", "replicaSet"],
    ),
    fails(
        "an option of seed lists without one",
        "mongodb://{plain}/?srvServiceName=custom",
        &["srvServiceName"],
        &["srvServiceName"],
    ),
];

/// Proxies. Ours are in the connection string; PyMongo uses PySocks.
pub(super) const PROXIES: &[Case] = &[
    connects("a proxy", "mongodb://{plain}/?{socks}"),
    connects("TLS through a proxy", "mongodb://{tls}/?tls=true&tlsCAFile={authority}&{socks}"),
    connects(
        "a user and a password",
        "mongodb://{plain}/?{secured}&proxyUsername=ada&proxyPassword=pencil",
    ),
    fails(
        "a wrong password",
        "mongodb://{plain}/?{secured}&proxyUsername=ada&proxyPassword=wrong",
        &["at proxy", "proxyPassword"],
        &["authentication failed"],
    ),
    fails(
        "no password, and the proxy demands one",
        "mongodb://{plain}/?{secured}",
        &["at proxy", "proxyUsername"],
        &["authentication methods"],
    ),
    fails(
        "the proxy is down",
        "mongodb://{plain}/?{dead-proxy}",
        &["proxy", "refused"],
        &["Connection refused"],
    ),
    fails(
        "the server behind the proxy is down",
        "mongodb://{dead}/?{socks}",
        &["at proxy", "the server refuses"],
        &["Connection refused"],
    ),
    refused(
        "the port of a proxy without host",
        "mongodb://{plain}/?proxyPort=1080",
        &["proxyPort", "proxyHost"],
        "warns, and connects without the proxy",
    ),
    fails(
        "another name, through a proxy",
        "mongodb://{wrong-name}/?tls=true&tlsCAFile={authority}&{socks}",
        &["tls", "name"],
        &["IP address mismatch"],
    ),
];

/// Servers that do not answer.
pub(super) const SILENCE: &[Case] = &[
    fails(
        "the server is down",
        "mongodb://{dead}/",
        &["connect", "refused"],
        &["Connection refused"],
    ),
    fails(
        "the name does not exist",
        "mongodb://no-such-host.invalid/",
        &["dns", "no-such-host.invalid"],
        &["no-such-host.invalid"],
    ),
    fails(
        "the server is silent",
        "mongodb://{silent}/?connectTimeoutMS=400",
        &["hello", "400ms"],
        &["timed out"],
    ),
    fails(
        "the server is silent in TLS",
        "mongodb://{silent}/?connectTimeoutMS=400&tls=true&tlsCAFile={authority}",
        &["tls"],
        &["timed out"],
    ),
];
