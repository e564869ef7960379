//! The messages of diagnoses and their remedies.

use alloc::vec::Vec;
use core::fmt;

use sdam_core::{
    Joined,
    address::ServerAddress,
    error::Error,
    server::ServerType,
    topology::{DepartureReason, Obstacle},
};

use super::Diagnosis;
use crate::explain::Seconds;

impl Diagnosis {
    /// Returns the remedy.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Incompatible(_) => {
                "upgrade the older of the two, or widen the range of wire versions if one is set"
            }
            Self::Departed(departure) => departed(&departure.reason),
            Self::NoServers { set_name: Some(_) } => {
                "check that the seeds are members of the replica set, that replicaSet is its name \
                 and that the members know each other by names this client can use"
            }
            Self::NoServers { set_name: None } => {
                "check that the seeds are servers of the deployment; a standalone server must be the \
                 only seed"
            }
            Self::NotAnsweredYet => {
                "raise the time limit of the selection; if no server is ever asked, this program is \
                 too busy to run the client's tasks"
            }
            Self::WrongSetName { .. } => WRONG_SET_NAME,
            Self::AddressMismatch { error: Some(_), .. }
            | Self::Unresolvable { advertised: true, .. } => Obstacle::NAMES,
            Self::AddressMismatch { .. } => MISNAMED,
            Self::PrimaryUnreachable { .. } => {
                "check that the primary can be reached from here; reads can go to secondaries \
                 meanwhile (readPreference=primaryPreferred)"
            }
            Self::NotInitiated { .. } => {
                "run rs.initiate() if the set is new, or rs.add() at its primary if the server was \
                 removed from it"
            }
            Self::NoPrimary { .. } => {
                "wait for the election, which needs a majority of the voting members: check that \
                 enough of them run and reach each other; reads can go to secondaries meanwhile \
                 (readPreference=primaryPreferred)"
            }
            Self::Refuses { server_type: ServerType::RsSecondary, .. } => {
                "remove directConnection=true so that the client finds the primary, or only read"
            }
            Self::Refuses { .. } => {
                "remove directConnection=true so that the client finds the members with data"
            }
            Self::NoMatchingTags => {
                "check the members' tags, or end the list with an empty tag set, which any member \
                 matches"
            }
            Self::AllStale => {
                "raise maxStalenessSeconds, find out why replication lags, or allow the primary \
                 (readPreference=secondaryPreferred)"
            }
            Self::StalenessUnknown => {
                "leave maxStalenessSeconds out, or update the servers that do not report lastWrite"
            }
            Self::DroppedBySelector => "check which servers the server selector drops",
            _ => self.connection_remedy(),
        }
    }

    /// Returns the remedy of a diagnosis about connections.
    fn connection_remedy(&self) -> &'static str {
        match self {
            Self::Unresolvable { .. } => Obstacle::SPELLING,
            Self::NothingReachable { addresses, .. } | Self::Unreachable { addresses, .. }
                if addresses.iter().all(ServerAddress::is_unix) =>
            {
                Obstacle::SOCKET
            }
            Self::NoAnswer { .. } | Self::NothingReachable { timed_out: true, .. } => {
                Obstacle::SILENT
            }
            Self::NothingReachable { .. } => {
                "check that the servers run, that host and port are right, and that the servers \
                 listen on addresses other than localhost (net.bindIp)"
            }
            Self::Unreachable { advertised: true, .. } => {
                "check that these members run, and that the addresses in the replica set's \
                 configuration can be reached from here and not only from one member to another; if \
                 they cannot, use address translation"
            }
            Self::Unreachable { .. } => "check that these servers run and can be reached from here",
            Self::ProxyFailed { .. } => Obstacle::PROXY,
            Self::TlsFailed { .. } => Obstacle::TLS,
            Self::TlsExpected { .. } => {
                "if the server requires TLS, set tls=true, and tlsCAFile unless its authority is one \
                 that this system trusts"
            }
            Self::NotMongoDb { .. } => {
                "correct host and port: another service seems to listen there; if it is a server \
                 that requires TLS, set tls=true"
            }
            Self::HelloRefused { failures } => {
                failures.iter().find_map(|(_, error)| error.remedy()).unwrap_or(LOG)
            }
            Self::AuthenticationFailed { error, .. } => error.remedy().unwrap_or(LOG),
            _ => LOG,
        }
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Incompatible(error) => f.write_str(error),
            Self::Departed(departure) => departure.fmt(f),
            Self::NoServers { set_name: Some(name) } => {
                write!(f, "no seed is a member of replica set {name}")
            }
            Self::NoServers { set_name: None } => f.write_str("no seed is usable"),
            Self::NotAnsweredYet => f.write_str("no server has answered yet"),
            Self::PrimaryUnreachable { address } => write!(
                f,
                "the members have a primary, {address}, but it cannot be reached from here"
            ),
            Self::NotInitiated { addresses } => write!(
                f,
                "servers were started for a replica set, but belong to none: {}",
                Joined(addresses, ", ")
            ),
            Self::NoPrimary { reached, members } => write!(
                f,
                "the replica set has no primary; {reached} of {members} members can be reached"
            ),
            Self::Refuses { address, server_type } => {
                let what = if server_type.is_data_bearing() { "writes" } else { "all operations" };
                write!(
                    f,
                    "the connection is direct (Single): {what} go to {address}, which refuses them \
                     as {server_type}"
                )
            }
            Self::NoMatchingTags => {
                f.write_str("members are available, but none has the requested tags")
            }
            Self::AllStale => {
                f.write_str("secondaries are available, but all exceed maxStalenessSeconds")
            }
            Self::StalenessUnknown => f.write_str(
                "secondaries are available, but maxStalenessSeconds excludes them, as they or the \
                 primary do not report their last write (lastWriteDate)",
            ),
            Self::DroppedBySelector => {
                f.write_str("servers are suitable, but a server selector dropped all of them")
            }
            _ => self.fmt_connection(f),
        }
    }
}

impl Diagnosis {
    /// Prints a diagnosis about connections.
    fn fmt_connection(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAnswer { addresses, time, advertised } => write!(
                f,
                "{}no answer from {} for {} to an attempt to connect",
                named(*advertised),
                Joined(addresses, ", "),
                Seconds(*time)
            ),
            Self::WrongSetName { address, error } => write!(f, "{address} {}", error.message()),
            Self::Unresolvable { addresses, advertised } => {
                write!(
                    f,
                    "{}{} cannot be resolved from here",
                    named(*advertised),
                    Joined(addresses, ", ")
                )
            }
            Self::NothingReachable { addresses, timed_out: true } => {
                write!(f, "no server can be reached in time: {}", Joined(addresses, ", "))
            }
            Self::NothingReachable { addresses, .. } => {
                write!(f, "no server accepts connections: {}", Joined(addresses, ", "))
            }
            Self::Unreachable { addresses, advertised } => {
                write!(
                    f,
                    "{}{} cannot be reached from here",
                    named(*advertised),
                    Joined(addresses, ", ")
                )
            }
            Self::ProxyFailed { failures } => fmt_proxy_failures(f, failures),
            Self::TlsFailed { failures } => {
                fmt_by_cause(f, ["TLS could not be negotiated", "with"], failures)
            }
            Self::TlsExpected { addresses } => {
                write!(f, "{} closes connections without a reply", Joined(addresses, ", "))
            }
            Self::NotMongoDb { failures } => {
                fmt_by_cause(f, ["there is no usable reply", "from"], failures)
            }
            Self::HelloRefused { failures } => {
                fmt_by_cause(f, ["hello is refused", "by"], failures)
            }
            Self::AuthenticationFailed { address, error } => {
                write!(f, "{address} rejects the credentials: {}", error.message())
            }
            Self::AddressMismatch { address, me, error: Some(error) } => {
                let (connected, me, error) = (address.clone(), me.clone(), error.clone());
                write!(f, "{}", Obstacle::NamesDiffer { connected, me, error })
            }
            Self::AddressMismatch { address, me, .. } => {
                write!(f, "{address} calls itself {me}")
            }
            _ => Ok(()),
        }
    }
}

const LOG: &str = "look at the log of the server";
const MISNAMED: &str = "address the member as it calls itself, or change its host in the replica \
                        set's configuration";
const WRONG_SET_NAME: &str = "if replicaSet is right, address members of that set instead";

/// Returns the remedy for a departure.
const fn departed(reason: &DepartureReason) -> &'static str {
    match reason {
        DepartureReason::WrongSetName { .. } => WRONG_SET_NAME,
        DepartureReason::Misnamed { .. } => MISNAMED,
        DepartureReason::NotListed { .. } => {
            "check the hosts in the replica set's configuration (rs.conf()): they have to be \
             addresses that this client can use"
        }
        DepartureReason::OneOfSeveralSeeds => "leave this host out, or all others",
        DepartureReason::WrongType { .. } => {
            "address the servers of one deployment only, and set replicaSet only if that is a \
             replica set"
        }
        _ => "check the DNS records of the deployment",
    }
}

/// Prints the failures at the proxy. The message of a failure names its server, so only the first
/// message is printed in full.
fn fmt_proxy_failures(f: &mut fmt::Formatter<'_>, failures: &[Failure]) -> fmt::Result {
    let [(_, first), others @ ..] = failures else {
        return Ok(());
    };
    f.write_str(first.message())?;
    match others {
        [] => Ok(()),
        [(other, _)] => write!(f, " ({other} fails at the proxy, too)"),
        others => write!(f, " ({} more servers fail at the proxy, too)", others.len()),
    }
}

/// Prints that `what` failed and on which servers, grouped by the cause of the failure.
fn fmt_by_cause(
    f: &mut fmt::Formatter<'_>,
    [what, preposition]: [&str; 2],
    failures: &[Failure],
) -> fmt::Result {
    let mut rest: Vec<&Failure> = failures.iter().collect();
    let mut separator = what;
    while let [(_, first), ..] = rest[..] {
        let (same, others): (Vec<_>, _) =
            rest.into_iter().partition(|(_, error)| error.message() == first.message());
        let addresses: Vec<_> = same.iter().map(|(address, _)| address.clone()).collect();
        write!(f, "{separator} {preposition} {}: {}", Joined(&addresses, ", "), first.message())?;
        (rest, separator) = (others, "; and");
    }
    Ok(())
}

type Failure = (ServerAddress, Error);

/// Returns the prefix that states the origin of the addresses that follow.
fn named(advertised: bool) -> &'static str {
    if advertised { "named as members by the replica set: " } else { "" }
}
