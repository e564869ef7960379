//! A blocking client for commands to one server, with SCRAM-SHA-256 that is implemented
//! independently of the code under test.

use std::fmt;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bson::spec::BinarySubtype;
use bson::{Binary, Document, doc};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

use crate::error::{COMMAND_TIMEOUT, CommandError, Error};
use crate::tls::{self, Certificates};

const OP_MSG: i32 = 2013;
const HEADER: usize = 16;
const CHECKSUM_PRESENT: u32 = 1;
/// The maximum size of a reply, `maxMessageSizeBytes`.
const MAX_MESSAGE: usize = 48_000_000;
/// The error code of an unknown command.
const COMMAND_NOT_FOUND: i32 = 59;

trait Stream: Read + Write + Send {}

impl<T: Read + Write + Send> Stream for T {}

/// A connection to one server. It skips the handshake, which servers do not require.
pub struct Client {
    address: SocketAddr,
    stream: Box<dyn Stream>,
    request_id: i32,
}

impl Client {
    /// Connects with a timeout of 30 s for every command.
    pub fn connect(address: SocketAddr) -> Result<Self, Error> {
        Self::open(address, COMMAND_TIMEOUT, None)
    }

    /// Connects, using TLS if there are certificates. The `timeout` applies to the connection
    /// attempt and to every single read and write.
    pub(crate) fn open(
        address: SocketAddr,
        timeout: Duration,
        certificates: Option<&Certificates>,
    ) -> Result<Self, Error> {
        let failed = || Error::io(format!("connecting to {address}"));
        let stream = TcpStream::connect_timeout(&address, timeout).map_err(failed())?;
        stream.set_read_timeout(Some(timeout)).map_err(failed())?;
        stream.set_write_timeout(Some(timeout)).map_err(failed())?;
        stream.set_nodelay(true).map_err(failed())?;
        let stream: Box<dyn Stream> = match certificates {
            Some(certificates) => Box::new(tls::negotiate(stream, certificates).map_err(failed())?),
            None => Box::new(stream),
        };
        Ok(Self { address, stream, request_id: 0 })
    }

    /// Runs a command and returns its reply.
    ///
    /// Returns [`Error::Command`] if the reply has `ok: 0`. After any other error the connection is
    /// unusable.
    pub fn run_command(&mut self, database: &str, command: Document) -> Result<Document, Error> {
        let name = command.keys().next().cloned().unwrap_or_default();
        let mut command = command;
        command.insert("$db", database);
        self.send(&command)?;
        let reply = self.receive()?;
        let ok = match reply.get("ok") {
            Some(bson::Bson::Double(ok)) => *ok > 0.0,
            Some(bson::Bson::Int32(ok)) => *ok > 0,
            Some(bson::Bson::Boolean(ok)) => *ok,
            _ => false,
        };
        if ok { Ok(reply) } else { Err(CommandError::from_reply(&name, reply).into()) }
    }

    /// Returns the reply to `hello`, or to legacy hello if the server does not support `hello`.
    /// Both replies contain `isWritablePrimary`.
    pub fn hello(&mut self) -> Result<Document, Error> {
        match self.run_command("admin", doc! { "hello": 1 }) {
            Err(error) if error.code() == Some(COMMAND_NOT_FOUND) => {
                let mut reply = self.run_command("admin", doc! { "isMaster": 1 })?;
                let primary = reply.get_bool("ismaster").unwrap_or(false);
                reply.insert("isWritablePrimary", primary);
                Ok(reply)
            }
            other => other,
        }
    }

    fn send(&mut self, command: &Document) -> Result<(), Error> {
        let body = command.to_vec().map_err(|error| Error::Protocol(error.to_string()))?;
        self.request_id = self.request_id.wrapping_add(1);
        let length = HEADER + 4 + 1 + body.len();
        let mut message = Vec::with_capacity(length);
        for word in [length as i32, self.request_id, 0, OP_MSG, 0] {
            message.extend_from_slice(&word.to_le_bytes());
        }
        message.push(0);
        message.extend_from_slice(&body);
        let failed = Error::io(format!("sending to {}", self.address));
        self.stream.write_all(&message).map_err(failed)
    }

    fn receive(&mut self) -> Result<Document, Error> {
        let failed = || Error::io(format!("receiving from {}", self.address));
        let mut header = [0; HEADER];
        self.stream.read_exact(&mut header).map_err(failed())?;
        let [length, _, response_to, opcode] = words(header);
        let length = usize::try_from(length).unwrap_or_default();
        if opcode != OP_MSG || response_to != self.request_id || length > MAX_MESSAGE {
            return Err(self.malformed("an unexpected message header"));
        }
        let rest = length
            .checked_sub(HEADER)
            .ok_or_else(|| self.malformed("a length smaller than the header"))?;
        let mut message = vec![0; rest];
        self.stream.read_exact(&mut message).map_err(failed())?;
        self.reply_body(&message)
    }

    /// Returns the document in the section of kind 0, which is the only section in a reply.
    fn reply_body(&self, message: &[u8]) -> Result<Document, Error> {
        let (flags, sections) =
            message.split_first_chunk().ok_or_else(|| self.malformed("no flags"))?;
        let checksum = if u32::from_le_bytes(*flags) & CHECKSUM_PRESENT == 0 { 0 } else { 4 };
        let end = sections.len().saturating_sub(checksum);
        match sections.get(..end) {
            Some([0, document @ ..]) => {
                Document::from_reader(document).map_err(|error| self.malformed(&error.to_string()))
            }
            _ => Err(self.malformed("no body section")),
        }
    }

    fn malformed(&self, what: &str) -> Error {
        Error::Protocol(format!("{} sent {what}", self.address))
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("address", &self.address).finish_non_exhaustive()
    }
}

fn words(header: [u8; HEADER]) -> [i32; 4] {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(header.chunks_exact(4)) {
        *word = bytes.try_into().map_or(0, i32::from_le_bytes);
    }
    words
}

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
