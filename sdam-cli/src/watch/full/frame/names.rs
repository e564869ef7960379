//! Short names of servers, without the common parts of their addresses.

use sdam_core::address::{DEFAULT_PORT, ServerAddress};

use super::super::super::model::Model;

/// The short names of the servers of a deployment.
///
/// Members of one set often differ only in the first label of their host names, or in their ports.
/// The table shows whole addresses if there is room.
pub(super) struct Names {
    names: Vec<(ServerAddress, String)>,
}

impl Names {
    pub(super) fn new(model: &Model) -> Self {
        let addresses = model.servers().map(|server| &server.description.address);
        Self::of(addresses)
    }

    fn of<'a>(addresses: impl Iterator<Item = &'a ServerAddress> + Clone) -> Self {
        let shorten = shortening(addresses.clone());
        let names = addresses.map(|address| (address.clone(), shorten(address)));
        Self { names: names.collect() }
    }

    /// Returns the short name of a server, or the whole address of one that was removed.
    pub(super) fn of_server<'n>(&'n self, address: &'n ServerAddress) -> &'n str {
        let found = self.names.iter().find(|(own, _)| own == address);
        found.map_or_else(|| short(address.as_str()), |(_, name)| name)
    }

    /// Replaces the addresses in `text` by short names.
    pub(super) fn shorten(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (address, name) in &self.names {
            if text.contains(address.as_str()) {
                text = text.replace(address.as_str(), name);
            }
        }
        text
    }
}

/// Returns an address without the default port.
pub(super) fn short(address: &str) -> &str {
    address.strip_suffix(":27017").unwrap_or(address)
}

/// Determines how to shorten the addresses.
fn shortening<'a>(
    addresses: impl Iterator<Item = &'a ServerAddress> + Clone,
) -> impl Fn(&ServerAddress) -> String {
    let count = addresses.clone().count();
    let mut hosts = addresses.clone().map(ServerAddress::host);
    let first = hosts.next().unwrap_or_default();
    let one_host = count > 1 && hosts.clone().all(|host| host == first);
    let mut ports = addresses.map(ServerAddress::port);
    let port = ports.next().flatten();
    let one_port = ports.all(|other| other == port);
    let domain = first.find('.').map(|dot| first[dot..].to_owned());
    // The parts of an IP address do not form a domain, so ignore them.
    let domain = domain.filter(|domain| domain.contains(|letter: char| letter.is_alphabetic()));
    let domain = domain.filter(|domain| count > 1 && hosts.all(|host| host.ends_with(&**domain)));
    move |address| {
        let Some(port) = address.port() else {
            return address.to_string();
        };
        if one_host {
            return format!(":{port}");
        }
        let host = address.host();
        let domain = domain.as_deref().unwrap_or_default();
        let host = host.strip_suffix(domain).unwrap_or(host);
        if one_port || port == DEFAULT_PORT { host.to_owned() } else { format!("{host}:{port}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_leave_out_what_all_addresses_have_in_common() {
        let check = |addresses: &[&str], expected: &[&str]| {
            let addresses: Vec<ServerAddress> =
                addresses.iter().map(|address| ServerAddress::parse(address).unwrap()).collect();
            let names = Names::of(addresses.iter());
            let short: Vec<&str> =
                addresses.iter().map(|address| names.of_server(address)).collect();
            assert_eq!(short, expected);
        };
        check(&["db-0.example.com", "db-1.example.com"], &["db-0", "db-1"]);
        check(&["db-0.example.com"], &["db-0.example.com"]);
        check(&["127.0.0.1:1", "127.0.0.1:2"], &[":1", ":2"]);
        check(&["10.0.0.1", "10.0.0.2"], &["10.0.0.1", "10.0.0.2"]);
        check(&["a.x.net:1", "b.x.net:2"], &["a:1", "b:2"]);
        check(&["a.x.net", "a.x.net:1", "b.x.net"], &["a", "a:1", "b"]);
        check(&["a.x.net", "b.y.net"], &["a.x.net", "b.y.net"]);
        check(&["[::1]:1", "[::1]:2"], &[":1", ":2"]);
        check(&["/tmp/a.sock", "/tmp/b.sock"], &["/tmp/a.sock", "/tmp/b.sock"]);
    }

    #[test]
    fn addresses_in_texts_are_replaced() {
        let addresses = ["a.x.net", "b.x.net"].map(|text| ServerAddress::parse(text).unwrap());
        let names = Names::of(addresses.iter());
        let text = "no primary for 1 s: a.x.net:27017 -> b.x.net:27017";
        assert_eq!(names.shorten(text), "no primary for 1 s: a -> b");
        let gone = ServerAddress::parse("c.x.net").unwrap();
        assert_eq!(names.of_server(&gone), "c.x.net");
    }
}
