//! SCRAM-SHA-256 for the blocking client, implemented independently of the code under test.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bson::{Binary, Document, doc, spec::BinarySubtype};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

use crate::client::Client;
use crate::error::Error;

/// The client's nonce. It is constant, which would be insecure outside of tests.
const NONCE: &str = "sdam-live";

impl Client {
    /// Authenticates the connection as a user of `admin`. Does not verify that the server knows the
    /// password.
    ///
    /// # Errors
    /// [`Error::Command`] if the server refuses the password.
    pub fn authenticate(&mut self, user: &str, password: &str) -> Result<(), Error> {
        let first = format!("n={user},r={NONCE}");
        let start = doc! {
            "saslStart": 1, "mechanism": "SCRAM-SHA-256",
            "payload": binary(format!("n,,{first}").as_bytes()),
            "options": { "skipEmptyExchange": true },
        };
        let reply = self.run_command("admin", start)?;
        let server_first = payload(&reply)?;
        let last = client_final(&first, &server_first, password)
            .ok_or_else(|| Error::Protocol(format!("the server's challenge: {server_first}")))?;
        let mut payload = last.into_bytes();
        loop {
            let next = doc! {
                "saslContinue": 1, "conversationId": reply.get_i32("conversationId").unwrap_or(1),
                "payload": binary(&payload),
            };
            if self.run_command("admin", next)?.get_bool("done").unwrap_or(false) {
                return Ok(());
            }
            // MongoDB 4.2 requires an empty exchange at the end.
            payload = Vec::new();
        }
    }
}

fn binary(bytes: &[u8]) -> Binary {
    Binary { subtype: BinarySubtype::Generic, bytes: bytes.to_vec() }
}

fn payload(reply: &Document) -> Result<String, Error> {
    let bytes = reply.get_binary_generic("payload").cloned();
    let text = bytes.ok().and_then(|bytes| String::from_utf8(bytes).ok());
    text.ok_or_else(|| Error::Protocol("a reply without a payload".to_owned()))
}

/// Returns the client's last message (RFC 5802, section 3).
fn client_final(first: &str, server_first: &str, password: &str) -> Option<String> {
    let attribute = |name: &str| server_first.split(',').find_map(|part| part.strip_prefix(name));
    let salt = BASE64.decode(attribute("s=")?).ok()?;
    let iterations = attribute("i=")?.parse().ok()?;
    let mut salted = [0; 32];
    pbkdf2::pbkdf2_hmac::<Sha256>(password.as_bytes(), &salt, iterations, &mut salted);
    let client_key = hmac(&salted, "Client Key")?;
    let without_proof = format!("c=biws,r={}", attribute("r=")?);
    let auth_message = format!("{first},{server_first},{without_proof}");
    let signature = hmac(&Sha256::digest(client_key), &auth_message)?;
    let pairs = client_key.iter().zip(signature);
    let proof: Vec<u8> = pairs.map(|(key, mask)| key ^ mask).collect();
    Some(format!("{without_proof},p={}", BASE64.encode(proof)))
}

fn hmac(key: &[u8], message: &str) -> Option<[u8; 32]> {
    let mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    Some(mac.chain_update(message).finalize().into_bytes().into())
}
