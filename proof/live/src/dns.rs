//! An authoritative DNS server for all names: Knot.

mod record;

use std::fs;
use std::net::SocketAddr;
use std::ops::Deref;
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};

use self::record::zone_file;
pub use self::record::{Record, RecordType};
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
