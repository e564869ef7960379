//! Parsers for the values of options.

use std::{
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
    str::FromStr,
    time::Duration,
};

/// The default port of name servers.
const DNS_PORT: u16 = 53;

/// Parses a number of seconds, such as `2.5`.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = f64::from_str(text).ok();
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.ok_or_else(|| "it needs a number of seconds, for example 2.5".to_owned())
}

/// Parses a number of seconds that must be positive.
pub(crate) fn some_seconds(text: &str) -> Result<Duration, String> {
    match seconds(text)? {
        Duration::ZERO => Err("it needs a number of seconds above 0, for example 2.5".to_owned()),
        duration => Ok(duration),
    }
}

/// Returns a parser for whole numbers in `range`.
pub(crate) fn whole<T: TryFrom<u64>>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let number = u64::from_str(text).ok();
        let number = number.filter(|number| range.contains(number));
        let number = number.and_then(|number| T::try_from(number).ok());
        let (least, most) = (range.start(), range.end());
        number.ok_or_else(|| format!("it needs a whole number from {least} to {most}"))
    }
}

/// Parses an address to listen on.
#[cfg(feature = "export")]
pub(crate) fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix("localhost:");
    let local = port.map(|port| format!("127.0.0.1:{port}"));
    let address = local.as_deref().unwrap_or(text).parse();
    address.map_err(|_| {
        "it needs an IP address of this host and a port, for example 127.0.0.1:9000 or \
         0.0.0.0:9000"
            .to_owned()
    })
}

/// Parses the address of a name server; the port is optional.
pub(crate) fn name_server(text: &str) -> Result<SocketAddr, String> {
    let with_port = SocketAddr::from_str(text).ok();
    let without = || IpAddr::from_str(text).map(|ip| SocketAddr::new(ip, DNS_PORT));
    with_port.map_or_else(without, Ok).map_err(|_| {
        "it needs the IP address of a DNS server, for example 10.0.0.2 or 10.0.0.2:5353".to_owned()
    })
}

/// Returns the arguments that an empty command line results in.
pub(crate) fn defaults<A: clap::Args>() -> A {
    let matches = A::augment_args(clap::Command::new("")).get_matches_from([""]);
    A::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_within_their_range() {
        let check = |text, expected: Option<u16>| assert_eq!(whole(1..=9)(text).ok(), expected);
        check("1", Some(1));
        check("9", Some(9));
        for text in ["0", "10", "-1", "x", "", "1.5", "99999999999999999999"] {
            check(text, None);
        }
        assert!(some_seconds("0").is_err());
        assert_eq!(some_seconds(".5"), Ok(Duration::from_millis(500)));
    }

    #[cfg(feature = "export")]
    #[test]
    fn addresses_may_leave_out_what_is_usual() {
        let check = |parsed: Result<SocketAddr, String>, expected: &str| {
            assert_eq!(parsed.unwrap().to_string(), expected);
        };
        check(listen_address("localhost:1"), "127.0.0.1:1");
        check(listen_address("[::1]:1"), "[::1]:1");
        check(name_server("10.0.0.2"), "10.0.0.2:53");
        check(name_server("::1"), "[::1]:53");
        check(name_server("10.0.0.2:5353"), "10.0.0.2:5353");
        for text in ["9216", "localhost", "localhost:x", "127.0.0.1:99999", "db:1"] {
            assert!(listen_address(text).is_err(), "{text}");
        }
    }
}
