//! The DNS zone for tests of SRV seed lists, on a real name server and in simulations.

use std::sync::{Arc, OnceLock};

use sdam_core::address::ServerAddress;
use sdam_dns::DnsResolver;
use sdam_live::{Dns, Record};
use sdam_sim::runtime::Sim;
use sdam_spec::srv::zone::{SRV, TTL, TXT};
use sdam_transport::runtime::Backend;

/// Returns `backend` with a resolver that queries a name server on loopback. All columns share this
/// server.
pub(super) fn real(mut backend: Backend) -> Result<Backend, String> {
    static SERVER: OnceLock<Result<Dns, String>> = OnceLock::new();
    let start = || Dns::start(records()).map_err(|error| error.to_string());
    let server = SERVER.get_or_init(start).as_ref()?;
    let resolver = DnsResolver::with_servers([server.address()]);
    backend.resolver = Some(Arc::new(resolver));
    Ok(backend)
}

fn records() -> impl Iterator<Item = Record> {
    let ttl = u32::try_from(TTL.as_secs()).unwrap_or(u32::MAX);
    let srv = SRV.iter();
    let srv = srv.map(|(name, target, port)| Record::srv(name, target, *port));
    let txt = TXT.iter();
    let txt = txt.map(|(name, strings)| Record::txt(name, strings.iter().copied()));
    srv.chain(txt).map(move |record| record.ttl(ttl))
}

/// Sets the records in a simulation.
pub(super) fn simulated(sim: &Sim) {
    for (name, ..) in SRV {
        let own = SRV.iter().filter(|(own, ..)| own == name);
        let hosts = own.map(|(_, target, port)| ServerAddress::new(target, *port));
        sim.dns().set_srv(name, TTL, hosts);
    }
    for (name, _) in TXT {
        let own = TXT.iter().filter(|(own, _)| own == name);
        let own: Vec<_> = own.map(|(_, strings)| strings.concat()).collect();
        sim.dns().set_txt(name, own.iter().map(String::as_str));
    }
}
