//! An authoritative DNS server for all names: Knot. It reads the records from a zone file.

use std::fmt::Write;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::daemon::Daemon;
use crate::debian::Package;
use crate::error::Error;

/// The directory of the control socket. It is the working directory, written as a short path,
/// because the system limits the path of a socket to 108 bytes.
const DIRECTORY: &str = "/proc/self/cwd";

/// A DNS server on a loopback port, over UDP and TCP. It is authoritative for the root zone: names
/// without records do not exist.
///
/// Answers over UDP that exceed the client's size limit are truncated. Dropping the server kills
/// it.
#[derive(Debug)]
pub struct Dns {
    package: Package,
    zone: Mutex<Zone>,
    daemon: Daemon,
}

#[derive(Debug)]
struct Zone {
    records: Vec<Record>,
    serial: u32,
}

impl Dns {
    /// Starts a server with the given records and waits until it answers.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if Knot is not installed and cannot be fetched; see
    /// [`or_skip`](crate::or_skip).
    pub fn start(records: impl IntoIterator<Item = Record>) -> Result<Self, Error> {
        let records = records.into_iter().collect();
        let dns = Self {
            package: Package::find("knot", "knotd")?,
            zone: Mutex::new(Zone { records, serial: 1 }),
            daemon: Daemon::new("knot")?,
        };
        dns.write("knot.conf", &configuration(dns.address()))?;
        dns.write("zone", &dns.zone().to_file())?;
        dns.restart()?;
        Ok(dns)
    }

    /// Replaces all records that have the same name and type as one of `records`. All changes take
    /// effect together, before the call returns.
    pub fn set(&self, records: impl IntoIterator<Item = Record>) -> Result<(), Error> {
        let records: Vec<_> = records.into_iter().collect();
        self.change(|zone| {
            zone.retain(|old| {
                !records.iter().any(|new| new.is_of_set(old.name(), old.record_type()))
            });
            zone.extend(records);
        })
    }

    /// Removes all records that have the given name and type. A name without any records ceases to
    /// exist.
    pub fn remove(&self, name: &str, record_type: RecordType) -> Result<(), Error> {
        self.change(|zone| zone.retain(|record| !record.is_of_set(name, record_type)))
    }

    /// Restarts the server on the same port with its current records; a running server is killed
    /// first.
    pub fn restart(&self) -> Result<(), Error> {
        let serial = self.zone().serial;
        let mut command = self.package.command("knotd");
        command.args(["--config", "knot.conf"]);
        self.daemon.start(command, || self.serves(serial))
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Record>)) -> Result<(), Error> {
        let mut zone = self.zone();
        change(&mut zone.records);
        zone.serial += 1;
        self.write("zone", &zone.to_file())?;
        self.control(&["--blocking", "zone-reload", "."]);
        if self.serves(zone.serial) {
            return Ok(());
        }
        let reason = "the DNS server refuses these records";
        Err(Error::State(reason.to_owned()))
    }

    /// Returns whether the server has loaded the version `serial` of the zone.
    fn serves(&self, serial: u32) -> bool {
        let soa = self.control(&["zone-read", ".", "@", "SOA"]);
        soa.contains(&format!(" SOA . . {serial} "))
    }

    /// Sends a command to the server and returns its output, which is empty if the server is not
    /// running.
    fn control(&self, arguments: &[&str]) -> String {
        let mut knotc = self.package.command("knotc");
        knotc.current_dir(self.daemon.dir()).stdin(Stdio::null());
        knotc.args(["--socket", &format!("{DIRECTORY}/knot.sock")]);
        let output = knotc.args(arguments).output();
        output.map_or_else(
            |_| String::new(),
            |output| String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    }

    fn write(&self, name: &str, text: &str) -> Result<(), Error> {
        let path = self.daemon.dir().join(name);
        fs::write(path, text).map_err(Error::io(format!("writing {name}")))
    }

    fn zone(&self) -> MutexGuard<'_, Zone> {
        // A panic elsewhere cannot leave the records in an inconsistent state.
        self.zone.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deref for Dns {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.daemon
    }
}

impl Zone {
    fn to_file(&self) -> String {
        zone_file(self.serial, &self.records)
    }
}

fn configuration(address: SocketAddr) -> String {
    let (ip, port) = (address.ip(), address.port());
    format!(
        r#"
server:
    rundir: "{DIRECTORY}"
    listen: "{ip}@{port}"
    udp-workers: 1
    tcp-workers: 1
    background-workers: 1
control:
    listen: "knot.sock"
database:
    storage: "."
log:
  - target: stdout
    any: info
zone:
  - domain: "."
    storage: "."
    file: "zone"
    journal-content: none
    zonefile-sync: -1
"#
    )
}

/// The default time to live of records, in seconds.
const TTL: u32 = 60;

/// A DNS record. Names are absolute, with or without the final dot.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Record {
    name: String,
    ttl: u32,
    kind: RecordType,
    /// The data of the record, in zone file format.
    data: String,
}

/// The type of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordType {
    /// An IPv4 address.
    A,
    /// An IPv6 address.
    Aaaa,
    /// The host and port of a service.
    Srv,
    /// One or more strings.
    Txt,
}

impl Record {
    /// Creates an A or an AAAA record.
    pub fn address(name: &str, address: impl Into<IpAddr>) -> Self {
        let address = address.into();
        let kind = if address.is_ipv4() { RecordType::A } else { RecordType::Aaaa };
        Self::new(name, kind, address.to_string())
    }

    /// Creates an SRV record with priority and weight 0.
    pub fn srv(name: &str, target: &str, port: u16) -> Self {
        Self::new(name, RecordType::Srv, format!("0 0 {port} {}", absolute(target)))
    }

    /// Creates a TXT record that consists of `strings`. A string of more than 255 bytes is split.
    pub fn txt<'a>(name: &str, strings: impl IntoIterator<Item = &'a str>) -> Self {
        let strings: Vec<_> = strings.into_iter().map(quoted).collect();
        Self::new(name, RecordType::Txt, strings.join(" "))
    }

    /// Sets the time to live in seconds, which is 60 by default. All records with the same name and
    /// type must have the same time to live.
    pub fn ttl(mut self, seconds: u32) -> Self {
        self.ttl = seconds;
        self
    }

    /// Returns the type of the record.
    pub fn record_type(&self) -> RecordType {
        self.kind
    }

    fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the record has the given name and type.
    fn is_of_set(&self, name: &str, record_type: RecordType) -> bool {
        self.kind == record_type && self.name.eq_ignore_ascii_case(&absolute(name))
    }

    fn new(name: &str, kind: RecordType, data: String) -> Self {
        Self { name: absolute(name), ttl: TTL, kind, data }
    }
}

fn absolute(name: &str) -> String {
    format!("{}.", name.strip_suffix('.').unwrap_or(name))
}

fn quoted(string: &str) -> String {
    let bytes = string.bytes().map(|byte| match byte {
        // Special bytes are escaped as decimal numbers.
        b'"' | b'\\' | ..b' ' | 127.. => format!("\\{byte:03}"),
        _ => char::from(byte).to_string(),
    });
    format!("\"{}\"", bytes.collect::<String>())
}

/// Returns the zone file of the root zone with the given records. The time to live of negative
/// answers is 0, so that clients do not cache the fact that a name does not exist.
fn zone_file(serial: u32, records: &[Record]) -> String {
    let mut text = format!(". 0 SOA . . {serial} 0 0 0 0\n. 0 NS localhost.\n");
    for Record { name, ttl, kind, data } in records {
        let kind = format!("{kind:?}").to_uppercase();
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name} {ttl} {kind} {data}");
    }
    text
}
