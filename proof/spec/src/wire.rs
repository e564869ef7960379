//! A second reader of all messages between the clients of tests and their servers.
//!
//! The simulated servers use the client's code for messages and SCRAM, so no file would fail if
//! this code were wrong on both sides. This module is independent of that code: `bson` decodes the
//! documents, `pbkdf2` derives the keys, and everything else is a separate implementation of the
//! specifications.

use std::sync::{Arc, Mutex};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use bson::{Bson, Document};
use hmac::{EagerHash, Hmac, KeyInit, Mac};
use md5::Md5;
use sdam_core::{address::ServerAddress, error::Error, time::Instant};
use sdam_transport::{
    async_trait,
    connect::{Connection, Transport, Wrap, Wrapped},
    wire::WireMessage,
};
use sha1::{Digest, Sha1};
use sha2::Sha256;

use crate::running::lock;

/// The bits of an OP_MSG (OP_MSG: "flagBits").
const MORE_TO_COME: u32 = 1 << 1;
const EXHAUST_ALLOWED: u32 = 1 << 16;

/// A reader of the messages of one deployment. It keeps the first fault that it finds.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    /// The name and the password in the connection string.
    user: Option<(String, String)>,
    fault: Arc<Mutex<Option<String>>>,
}

impl Reader {
    /// Creates the reader for clients of the deployment at `uri`.
    pub(crate) fn new(uri: &str) -> Self {
        let user = uri.strip_prefix("mongodb://").and_then(|rest| rest.split_once('@'));
        let user = user.and_then(|(user, _)| user.split_once(':'));
        let user = user.map(|(name, password)| (name.to_owned(), password.to_owned()));
        Self { user, fault: Arc::default() }
    }

    /// Returns a transport whose messages are read.
    pub(crate) fn read(&self, transport: Arc<dyn Transport>) -> Arc<dyn Transport> {
        Arc::new(Wrapped::new(transport, self.clone()))
    }

    /// Fails if a message was wrong.
    pub(crate) fn verdict(&self) -> Result<(), String> {
        match &*lock(&self.fault) {
            Some(fault) => Err(format!("a message is wrong: {fault}")),
            None => Ok(()),
        }
    }
}

#[async_trait]
impl Wrap for Reader {
    async fn connect(
        &self,
        inner: &dyn Transport,
        target: &ServerAddress,
        deadline: Option<Instant>,
    ) -> Result<Box<dyn Connection>, Error> {
        let inner = inner.connect(target, deadline).await?;
        let dialogue = Dialogue { user: self.user.clone(), due: None, scram: None };
        Ok(Box::new(Read { inner, dialogue, fault: Arc::clone(&self.fault) }))
    }
}

/// A connection whose messages are read.
#[derive(Debug)]
struct Read {
    inner: Box<dyn Connection>,
    dialogue: Dialogue,
    fault: Arc<Mutex<Option<String>>>,
}

impl Read {
    fn note(&self, outcome: Result<(), String>, message: &WireMessage) {
        if let Err(fault) = outcome {
            lock(&self.fault).get_or_insert_with(|| format!("{fault}, in {message:?}"));
        }
    }
}

#[async_trait]
impl Connection for Read {
    async fn send(&mut self, message: WireMessage) -> Result<(), Error> {
        let outcome = self.dialogue.request(message.as_bytes());
        self.note(outcome, &message);
        self.inner.send(message).await
    }

    async fn recv(&mut self) -> Result<WireMessage, Error> {
        let message = self.inner.recv().await?;
        let outcome = self.dialogue.reply(message.as_bytes());
        self.note(outcome, &message);
        Ok(message)
    }

    fn set_max_message_size(&mut self, bytes: usize) {
        self.inner.set_max_message_size(bytes);
    }

    fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.inner.set_deadline(deadline);
    }
}

/// The state of one connection.
#[derive(Debug)]
struct Dialogue {
    user: Option<(String, String)>,
    /// The message that the next reply must answer: the last request or, in a stream, the last
    /// reply.
    due: Option<Due>,
    scram: Option<Scram>,
}

#[derive(Clone, Copy, Debug)]
struct Due {
    id: i32,
    format: Format,
    may_stream: bool,
}

impl Dialogue {
    fn request(&mut self, bytes: &[u8]) -> Result<(), String> {
        let message = Message::read(bytes)?;
        require(self.due.is_none(), "a request before the reply to the one before")?;
        require(message.answers == 0, "a request that answers a message")?;
        require(message.format != Format::Reply, "a reply instead of a request")?;
        let command = message.body.keys().next().map(String::as_str).unwrap_or_default();
        let is_hello = ["hello", "isMaster", "ismaster"].contains(&command);
        if message.format == Format::Query {
            require(is_hello, "a command other than hello in OP_QUERY")?;
        } else {
            require(message.flags & !(MORE_TO_COME | EXHAUST_ALLOWED) == 0, "unknown flags")?;
            require(message.body.get_str("$db").is_ok(), "no $db")?;
        }
        let has_no_reply = message.flags & MORE_TO_COME != 0;
        let concern = message.body.get_document("writeConcern");
        let waits_for_none = concern.is_ok_and(|own| own.get("w").and_then(number) == Some(0));
        require(!has_no_reply || waits_for_none, "moreToCome without w: 0")?;
        let may_stream = message.flags & EXHAUST_ALLOWED != 0;
        let (id, format) = (message.id, message.format);
        self.due = (!has_no_reply).then_some(Due { id, format, may_stream });
        Scram::hear_client(&mut self.scram, &message.body)
    }

    fn reply(&mut self, bytes: &[u8]) -> Result<(), String> {
        let message = Message::read(bytes)?;
        let due = self.due.take().ok_or("a reply without a request")?;
        require(message.answers == due.id, "a reply to another message")?;
        let format = if due.format == Format::Query { Format::Reply } else { Format::Msg };
        require(message.format == format, "a reply in another format than the request")?;
        require(message.body.get("ok").and_then(number).is_some(), "no ok")?;
        if format == Format::Msg {
            require(message.flags & !MORE_TO_COME == 0, "unknown flags")?;
            if message.flags & MORE_TO_COME != 0 {
                require(due.may_stream, "a stream without exhaustAllowed")?;
                self.due = Some(Due { id: message.id, ..due });
            }
        }
        Scram::hear_server(&mut self.scram, &message.body, self.user.as_ref())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Msg,
    Query,
    Reply,
}

#[derive(Debug)]
struct Message {
    id: i32,
    answers: i32,
    format: Format,
    flags: u32,
    body: Document,
}

impl Message {
    fn read(mut bytes: &[u8]) -> Result<Self, String> {
        let length = bytes.len();
        let bytes = &mut bytes;
        require(usize::try_from(int(bytes)?) == Ok(length), "wrong messageLength")?;
        let (id, answers, code) = (int(bytes)?, int(bytes)?, int(bytes)?);
        let flags = int(bytes)?.cast_unsigned();
        let (format, body) = match code {
            2013 => (Format::Msg, sections(bytes)?),
            2004 => {
                require(text(bytes)? == "admin.$cmd", "a query of another collection")?;
                require(
                    (int(bytes)?, int(bytes)?.abs()) == (0, 1),
                    "a query of several documents",
                )?;
                (Format::Query, document(bytes)?)
            }
            1 => {
                let (cursor, [start, count]) =
                    ([int(bytes)?, int(bytes)?], [int(bytes)?, int(bytes)?]);
                require((cursor, start, count) == ([0, 0], 0, 1), "a reply of several documents")?;
                (Format::Reply, document(bytes)?)
            }
            other => return Err(format!("the opcode {other}")),
        };
        require(bytes.is_empty(), "bytes after the end")?;
        Ok(Self { id, answers, format, flags, body })
    }
}

/// Reads the sections of an OP_MSG that has no checksum. Returns the document of the section of
/// kind 0.
fn sections(bytes: &mut &[u8]) -> Result<Document, String> {
    let mut body = None;
    while let Some((kind, rest)) = bytes.split_first() {
        *bytes = rest;
        match kind {
            0 => require(body.replace(document(bytes)?).is_none(), "two sections of kind 0")?,
            1 => {
                let length = int(&mut &**bytes)?;
                let length = usize::try_from(length).map_err(|error| error.to_string())?;
                let (section, rest) =
                    bytes.split_at_checked(length).ok_or("a section is cut off")?;
                *bytes = rest;
                let documents = &mut section.get(4..).unwrap_or_default();
                text(documents)?;
                while !documents.is_empty() {
                    document(documents)?;
                }
            }
            other => return Err(format!("a section of kind {other}")),
        }
    }
    body.ok_or_else(|| "no section of kind 0".to_owned())
}

fn int(bytes: &mut &[u8]) -> Result<i32, String> {
    let (int, rest) = bytes.split_first_chunk().ok_or("a number is cut off")?;
    *bytes = rest;
    Ok(i32::from_le_bytes(*int))
}

fn text(bytes: &mut &[u8]) -> Result<String, String> {
    let end = bytes.iter().position(|byte| *byte == 0).ok_or("a text is cut off")?;
    let text = bytes[..end].to_vec();
    *bytes = &bytes[end + 1..];
    String::from_utf8(text).map_err(|error| error.to_string())
}

fn document(bytes: &mut &[u8]) -> Result<Document, String> {
    Document::from_reader(bytes).map_err(|error| error.to_string())
}

fn number(value: &Bson) -> Option<i64> {
    match *value {
        Bson::Int32(number) => Some(number.into()),
        Bson::Int64(number) => Some(number),
        Bson::Double(number) => Some(number as i64),
        _ => None,
    }
}

fn require(holds: bool, fault: &str) -> Result<(), String> {
    holds.then_some(()).ok_or_else(|| fault.to_owned())
}

/// A SCRAM conversation: the alternating payloads of client and server (RFC 5802).
#[derive(Debug)]
struct Scram {
    is_sha_256: bool,
    payloads: Vec<String>,
}

impl Scram {
    fn hear_client(conversation: &mut Option<Self>, command: &Document) -> Result<(), String> {
        let speculative = command.get_document("speculativeAuthenticate").ok();
        let start = speculative.unwrap_or(command);
        if start.contains_key("saslStart") {
            let mechanism = start.get_str("mechanism").unwrap_or_default();
            *conversation = match mechanism {
                "SCRAM-SHA-1" | "SCRAM-SHA-256" => Some(Self {
                    is_sha_256: mechanism.ends_with("-256"),
                    payloads: vec![payload(start)?],
                }),
                _ => None,
            };
        } else if let Some(own) = conversation
            && command.contains_key("saslContinue")
        {
            own.payloads.push(payload(command)?);
        }
        Ok(())
    }

    fn hear_server(
        conversation: &mut Option<Self>,
        reply: &Document,
        user: Option<&(String, String)>,
    ) -> Result<(), String> {
        let Some(own) = conversation.as_mut().filter(|own| own.payloads.len() % 2 == 1) else {
            return Ok(());
        };
        let reply = reply.get_document("speculativeAuthenticate").unwrap_or(reply);
        if !reply.contains_key("payload") {
            // The server has refused the authentication.
            *conversation = None;
            return Ok(());
        }
        own.payloads.push(payload(reply)?);
        match &*own.payloads {
            [hello, challenge, answer, end] => {
                let (name, password) = user.ok_or("SCRAM without a user")?;
                let texts = [hello, challenge, answer, end].map(String::as_str);
                if own.is_sha_256 {
                    verify::<Sha256>(texts, name, password)
                } else {
                    let digest = Md5::digest(format!("{name}:mongo:{password}"));
                    let digits = digest.iter().map(|byte| format!("{byte:02x}"));
                    verify::<Sha1>(texts, name, &digits.collect::<String>())
                }
            }
            _ => Ok(()),
        }
    }
}

/// Checks the proofs of client and server (RFC 5802, section 3). The password is ASCII, which
/// SASLprep does not change.
fn verify<H: EagerHash + Digest>(
    [hello, challenge, answer, end]: [&str; 4],
    name: &str,
    password: &str,
) -> Result<(), String> {
    let bare = hello.strip_prefix("n,,").ok_or("no header of SCRAM")?;
    let (without_proof, proof) = answer.split_once(",p=").ok_or("no proof")?;
    let mut attributes = challenge.split(',').map(|attribute| attribute.split_at(2).1);
    let mut attribute = || attributes.next().ok_or("an attribute is missing");
    let (nonce, salt, rounds) = (attribute()?, attribute()?, attribute()?);
    let client_nonce = bare.strip_prefix(&format!("n={name},r=")).ok_or("another user")?;
    require(nonce.starts_with(client_nonce), "another nonce")?;
    require(without_proof == format!("c=biws,r={nonce}"), "another binding or nonce")?;
    let salt = BASE64.decode(salt).map_err(|error| error.to_string())?;
    let rounds = rounds.parse().map_err(|_| "no number of rounds")?;
    let mut salted = H::digest("").to_vec();
    pbkdf2::pbkdf2_hmac::<H>(password.as_bytes(), &salt, rounds, &mut salted);
    let messages = format!("{bare},{challenge},{without_proof}");
    let client_key = mac::<H>(&salted, "Client Key");
    let signature = mac::<H>(&H::digest(&client_key), &messages);
    let expected: Vec<_> = client_key.iter().zip(signature).map(|(a, b)| a ^ b).collect();
    require(BASE64.decode(proof) == Ok(expected), "a wrong proof of the client")?;
    let expected = mac::<H>(&mac::<H>(&salted, "Server Key"), &messages);
    require(end == format!("v={}", BASE64.encode(expected)), "a wrong proof of the server")
}

fn mac<H: EagerHash>(key: &[u8], text: &str) -> Vec<u8> {
    let mac = Hmac::<H>::new_from_slice(key).map(|mac| mac.chain_update(text));
    mac.map(|mac| mac.finalize().into_bytes().to_vec()).unwrap_or_default()
}

fn payload(document: &Document) -> Result<String, String> {
    let payload = document.get_binary_generic("payload").map_err(|error| error.to_string())?;
    String::from_utf8(payload.clone()).map_err(|error| error.to_string())
}
