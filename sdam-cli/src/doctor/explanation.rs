//! The explanation of each check and its possible findings, for `--explain`.

use super::check::Check;

impl Check {
    /// Returns the paragraphs that explain the check.
    #[expect(clippy::too_many_lines, reason = "a table")]
    pub(super) const fn explanation(self) -> &'static [&'static str] {
        match self {
            Self::Uri => &[
                "The connection string is parsed as drivers do, and the files that it names for TLS \
                 are read. Nothing is sent.",
                "fail: it cannot be used, and no other check is made. Special characters in user \
                 name and password have to be percent-encoded. directConnection=true needs a single \
                 host, and loadBalanced=true excludes replicaSet.",
                "warn: an option is unknown, has no effect, or turns a protection off.",
            ],
            Self::DnsSrv => &[
                "A mongodb+srv string has one name. Its SRV records _mongodb._tcp.NAME list the \
                 hosts, and its TXT record may add authSource, replicaSet and loadBalanced.",
                "fail: there is no record, the hosts are outside of the name's domain, or the name \
                 server gives no answer. Some routers and VPNs drop SRV queries: list the hosts in a \
                 mongodb:// string then.",
            ],
            Self::DnsAddr => &[
                "Each host name is looked up once, for IPv4 and IPv6, as the operating system does: \
                 /etc/hosts counts.",
                "fail: there is no such name, or no answer. The names of members come from the \
                 configuration of the set and not from the connection string; topo.members is about \
                 them.",
                "warn: the name leads to this machine itself.",
            ],
            Self::Tcp => &[
                "A connection to each address of each host is opened, and closed again. With \
                 proxyHost the connection goes through the proxy, and its failures are shown here.",
                "fail, refused: the host is up, and nothing listens at this port. Check that the \
                 server runs, net.port and net.bindIp.",
                "fail, no answer: a firewall or an allow list drops the packets, or the host is \
                 down. From here these look the same.",
                "info: one of several addresses does not accept connections. Drivers try the others, \
                 and connecting takes longer.",
            ],
            Self::TlsHandshake => &[
                "With tls=true, client and server negotiate a version and a cipher suite, and the \
                 server may ask for a certificate of the client (tlsCertificateKeyFile).",
                "fail: the server speaks plain text at this port, wants a certificate of the client, \
                 or ends the handshake. Hosting services end it for addresses outside of their allow \
                 list, often with alert 80 (internal error).",
            ],
            Self::TlsVerify => &[
                "The certificate of each server has to be issued by a trusted authority (the \
                 system's, or tlsCAFile), to be in time, and to include the name that is used to \
                 connect. That is the name in the set's configuration, once the set is known.",
                "fail: drivers refuse to connect. The finding has the names or the dates.",
                "warn: it expires in less than 30 days.",
            ],
            Self::Hello => &[
                "Each server gets hello, the command with which every driver begins, four times. The \
                 reply has the type of the server, its set and its wire versions.",
                "fail, closed without an answer: the server requires TLS, is too old, has too many \
                 connections, or is no MongoDB.",
                "fail, no answer: the server hangs or is overloaded, or something else listens \
                 there.",
                "fail, wire versions: client and server have no version of the protocol in common.",
            ],
            Self::TopoKind => &[
                "All seeds have to be of one deployment: members of the set that replicaSet names, \
                 or mongos, or a single standalone server.",
                "fail: a client removes the server from its list. The finding has the wanted and the \
                 found name of the set.",
            ],
            Self::TopoMembers => &[
                "Clients connect to the names in the configuration of the set, and forget the seeds. \
                 Every member that a server names is checked like a seed, from dns.addr to hello.",
                "fail: a name works between the members, but not from here. This is common with \
                 containers, tunnels and private networks. Add the names to DNS or /etc/hosts, \
                 reconfigure the members, use --translate to try other addresses, or connect to one \
                 server with directConnection=true.",
                "info: a server calls itself by another name than the connection string does.",
            ],
            Self::TopoPrimary => &[
                "Exactly one member should be primary, and all should name it. Two answers of one \
                 moment may differ during an election: run the check again.",
                "fail: there is no primary, it cannot be reached, or there are two. Of two, the one \
                 with the greater electionId counts (before MongoDB 6.0 with the greater setVersion \
                 first).",
                "warn: members name different primaries, or have different versions of the \
                 configuration.",
            ],
            Self::Clock => &[
                "The localTime of each reply is compared with the clock of this machine; half of the \
                 round trip is taken out.",
                "warn: they differ by more than 1 s. Certificates and logs, TTL indexes and the \
                 staleness of secondaries depend on clocks.",
            ],
            Self::Lag => &[
                "lastWrite.lastWriteDate of each secondary is compared with that of the primary.",
                "warn: a secondary is more than 11 s behind (an idle primary writes every 10 s). Reads \
                 from it miss newer writes, and writes of a majority may wait for it.",
            ],
            Self::Rtt => &[
                "The round-trip times of hello, without the first one. A client chooses among the \
                 suitable servers whose average is within localThresholdMS of the fastest.",
                "warn: a server that the read preference allows is never chosen, or connectTimeoutMS \
                 is less than three round trips.",
            ],
            Self::Auth => &[
                "If the connection string has credentials, one server gets a login and ping. A \
                 single one, because accounts may be locked after several failures.",
                "fail with code 18: user name or password are wrong, or the user was created in \
                 another database than authSource. The server gives the same answer to each.",
            ],
            Self::Select => &[
                "What a driver would do last: choose a server for a write, and one for a read with \
                 the read preference of the connection string.",
                "fail: no server is suitable, although all other checks are well. skip: an earlier \
                 failure explains it. `sdam explain` has the reason for each server.",
            ],
            Self::Write => &[
                "With --write DB.COLLECTION, a document is inserted there with a write concern of \
                 majority, and deleted again. Without the option, nothing is written.",
                "fail: the write is refused, or a majority does not acknowledge it in time. Then \
                 applications that wait for a majority are stuck too, although there is a primary.",
                "warn: the document could not be deleted; delete those with by: \"sdam doctor\".",
            ],
        }
    }
}
