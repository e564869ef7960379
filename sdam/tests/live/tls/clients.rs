//! Pools, commands and authentication over TLS.

use std::fmt::Write as _;

use bson::{RawDocument, doc, rawdoc};
use futures::executor::block_on;
use sdam::client::{Client, Command};
use sdam_live::{Certificates, Mongod, ServerTls};
use sdam_tls::Rustls;

use super::{certificates, start, with_client};
use crate::runtime::Host;

/// Returns the authenticated user, or the error.
fn authenticated(mongod: &Mongod, user_info: &str, options: &str) -> Result<String, String> {
    let host = Host::start().with_tls(Rustls::ring());
    let uri = format!("mongodb://{user_info}{}/?directConnection=true&{options}", mongod.host());
    let client = Client::start(&uri, host.runtime.clone()).unwrap();
    let status = rawdoc! { "connectionStatus": 1 };
    let reply = block_on(client.run(&Command::read("admin", status.as_bytes())));
    block_on(client.close());
    let reply = reply.map_err(|error| format!("{error:#}"))?;
    let reply = RawDocument::from_bytes(reply.body()).unwrap();
    let users = reply.get_document("authInfo").unwrap().get_array("authenticatedUsers").unwrap();
    let user = users.into_iter().next().unwrap().unwrap();
    Ok(user.as_document().unwrap().get_str("user").unwrap().to_owned())
}

/// Authenticates with MONGODB-X509: first without a user name, so that the server derives the user
/// from the certificate, and then with an explicit user name.
#[test]
#[ignore = "deep: real servers"]
fn a_client_certificate_authenticates_the_user_of_its_subject() {
    // The user name is sent only if it is given (O-5, T-7).
    let certificates = certificates();
    let tls = ServerTls::new(&certificates).require_client_certificates();
    let Some(mongod) = start(&tls) else { return };
    let x509 = format!("{}&authMechanism=MONGODB-X509", with_client(&certificates));
    let error = authenticated(&mongod, "", &x509).unwrap_err();
    assert!(error.contains("at auth"), "the server does not know the user: {error}");
    let create = doc! { "createUser": Certificates::CLIENT, "roles": [] };
    mongod.run_command("$external", create).unwrap();
    let mut encoded = String::new();
    for byte in Certificates::CLIENT.bytes() {
        write!(encoded, "%{byte:02x}").unwrap();
    }
    for user_info in ["", &format!("{encoded}@")] {
        let user = authenticated(&mongod, user_info, &x509);
        assert_eq!(user.as_deref(), Ok(Certificates::CLIENT));
    }
    let error = authenticated(&mongod, "CN=other@", &x509).unwrap_err();
    assert!(error.contains("at auth"), "{error}");
}

/// The server refuses PLAIN, because only the Enterprise edition supports it, and only together
/// with an LDAP server.
#[test]
#[ignore = "deep: real servers"]
fn plain_is_offered_to_a_server_over_tls_which_lacks_it() {
    let certificates = certificates();
    let Some(mongod) = start(&ServerTls::new(&certificates)) else {
        return;
    };
    let plain = format!("{}&authMechanism=PLAIN", certificates.options());
    let error = authenticated(&mongod, "ada:pencil@", &plain).unwrap_err();
    assert!(error.contains("at auth") && error.contains("PLAIN"), "{error}");
}
