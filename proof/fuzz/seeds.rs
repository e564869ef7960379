//! Writes the seed inputs of the fuzz targets: `cargo run --bin seeds` in this folder.

#[path = "../../sdam-core/benches/fixture/mod.rs"]
mod fixture;

use std::{fs, io, path::Path};

use bson::rawdoc;
use sdam_core::{hello::HelloRequest, options::HandshakeOpcode, rng::Rng};
use sdam_transport::wire::{Exchange, OpMsg, OpReply, Sequence, WireError};

const URIS: [&str; 6] = [
    "mongodb://a,b:27018/?replicaSet=rs&readPreference=nearest&readPreferenceTags=dc:ny",
    "mongodb://user:p%40ss@[::1]:27017,%2Ftmp%2Fmongodb.sock/db?authMechanism=SCRAM-SHA-256",
    "mongodb+srv://cluster.example.com/?srvMaxHosts=2&srvServiceName=mongodb",
    "mongodb://a/?loadBalanced=true&tls=true&tlsInsecure=true&heartbeatFrequencyMS=500",
    "mongodb://a/?directConnection=true&serverMonitoringMode=poll&w=majority&journal=true",
    "mongodb://a/?authMechanismProperties=SERVICE_NAME:x,CANONICALIZE_HOST_NAME:true",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let hello = fixture::primary_hello();
    let failure = rawdoc! {
        "ok": 0, "errmsg": "going down", "code": 91, "errorLabels": ["RetryableError"],
        "writeConcernError": { "code": 91, "errmsg": "going down" },
    };
    write("deployment", &[1, 2, 3, 4].map(noise))?;
    write("exchange", &[1, 2, 3, 4].map(noise))?;
    write("hello", &[hello.clone(), failure.into_bytes()])?;
    write("wire", &messages(&hello)?)?;
    write("uri", &URIS.map(|uri| uri.as_bytes().to_vec()))?;
    Ok(())
}

/// Generates random bytes, which a fuzz target interprets as a history.
fn noise(seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let words = std::iter::repeat_with(|| rng.next_u64().to_le_bytes());
    words.take(64).flatten().collect()
}

fn messages(hello: &[u8]) -> Result<Vec<Vec<u8>>, WireError> {
    let query = HelloRequest::handshake(Default::default(), None, HandshakeOpcode::OpQuery);
    let document = rawdoc! { "_id": 1 }.into_bytes();
    let documents = [document.clone(), document].concat();
    let stream = OpMsg {
        request_id: 2,
        response_to: 1,
        more_to_come: true,
        checksum: true,
        body: hello,
        sequences: &[Sequence::new("documents", &documents)],
        ..OpMsg::default()
    };
    let reply =
        OpReply { request_id: 2, response_to: 1, flags: OpReply::AWAIT_CAPABLE, body: hello };
    let messages = [
        Exchange::new().hello(&query)?,
        Exchange::new().hello(&HelloRequest::poll(true, None))?,
        stream.encode()?,
        reply.encode()?,
    ];
    Ok(messages.map(|message| message.into_bytes()).to_vec())
}

fn write(target: &str, seeds: &[Vec<u8>]) -> io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    fs::create_dir_all(&folder)?;
    for (number, seed) in seeds.iter().enumerate() {
        fs::write(folder.join(format!("seed-{number}")), seed)?;
    }
    Ok(())
}
