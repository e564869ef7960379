//! The DNS zone for the tests (Initial DNS Seedlist Discovery: "Test Setup").

use std::time::Duration;

use sdam_core::{address::ServerAddress, srv::SrvRecords};

/// The time to live of all records.
pub const TTL: Duration = Duration::from_secs(86_400);

/// The host in most records.
pub const HOST: &str = "localhost.test.build.10gen.cc";
/// The host in the SRV record whose target is in a deeper subdomain.
pub const SUB_HOST: &str = "localhost.sub.test.build.10gen.cc";

/// The SRV records: name, target and port.
///
/// `test4`, `test9` and `10gen.cc` intentionally have no records. "Test Setup" lists one record for
/// `test22`, but the test of this name and the polling tests expect two records. The last two
/// records are for newer tests, in which SRV names are also host names.
pub const SRV: &[(&str, &str, u16)] = &[
    ("_mongodb._tcp.test1.test.build.10gen.cc", HOST, 27017),
    ("_mongodb._tcp.test1.test.build.10gen.cc", HOST, 27018),
    ("_mongodb._tcp.test2.test.build.10gen.cc", HOST, 27018),
    ("_mongodb._tcp.test2.test.build.10gen.cc", HOST, 27019),
    ("_mongodb._tcp.test3.test.build.10gen.cc", HOST, 27017),
    ("_mongodb._tcp.test5.test.build.10gen.cc", HOST, 27017),
    ("_mongodb._tcp.test6.test.build.10gen.cc", HOST, 27017),
    ("_mongodb._tcp.test7.test.build.10gen.cc", HOST, 27017),
    ("_mongodb._tcp.test8.test.build.10gen.cc", HOST, 27017),
    ("_mongodb._tcp.test10.test.build.10gen.cc", HOST, 27017),
    ("_mongodb._tcp.test11.test.build.10gen.cc", HOST, 27017),
    ("_mongodb._tcp.test12.test.build.10gen.cc", "localhost.build.10gen.cc", 27017),
    ("_mongodb._tcp.test13.test.build.10gen.cc", "test.build.10gen.cc", 27017),
    ("_mongodb._tcp.test14.test.build.10gen.cc", "localhost.not-test.build.10gen.cc", 27017),
    ("_mongodb._tcp.test15.test.build.10gen.cc", "localhost.test.not-build.10gen.cc", 27017),
    ("_mongodb._tcp.test16.test.build.10gen.cc", "localhost.test.build.not-10gen.cc", 27017),
    ("_mongodb._tcp.test17.test.build.10gen.cc", "localhost.test.build.10gen.not-cc", 27017),
    ("_mongodb._tcp.test18.test.build.10gen.cc", SUB_HOST, 27017),
    ("_mongodb._tcp.test19.test.build.10gen.cc", "localhost.evil.build.10gen.cc", 27017),
    ("_mongodb._tcp.test19.test.build.10gen.cc", HOST, 27017),
    ("_mongodb._tcp.test20.test.build.10gen.cc", HOST, 27017),
    ("_mongodb._tcp.test21.test.build.10gen.cc", HOST, 27017),
    ("_customname._tcp.test22.test.build.10gen.cc", HOST, 27017),
    ("_customname._tcp.test22.test.build.10gen.cc", HOST, 27018),
    ("_mongodb._tcp.test23.test.build.10gen.cc", HOST, 8000),
    ("_mongodb._tcp.test24.test.build.10gen.cc", HOST, 8000),
    ("_mongodb._tcp.test.build.10gen.cc", "test.build.10gen.cc", 27017),
    ("_mongodb._tcp.build.10gen.cc", "build.10gen.cc", 27017),
];

/// The TXT records: name and strings.
pub const TXT: &[(&str, &[&str])] = &[
    ("test5.test.build.10gen.cc", &["replicaSet=repl0&authSource=thisDB"]),
    ("test6.test.build.10gen.cc", &["replicaSet=repl0"]),
    ("test6.test.build.10gen.cc", &["authSource=otherDB"]),
    ("test7.test.build.10gen.cc", &["ssl=false"]),
    ("test8.test.build.10gen.cc", &["authSource"]),
    ("test10.test.build.10gen.cc", &["socketTimeoutMS=500"]),
    ("test11.test.build.10gen.cc", &["replicaS", "et=rep", "l0"]),
    ("test20.test.build.10gen.cc", &["loadBalanced=true"]),
    ("test21.test.build.10gen.cc", &["loadBalanced=false"]),
    ("test24.test.build.10gen.cc", &["loadBalanced=true"]),
];

/// Returns the SRV records of `name`.
pub fn srv(name: &str) -> SrvRecords {
    let own = SRV.iter().filter(|(own, ..)| *own == name);
    let hosts = own.map(|(_, target, port)| ServerAddress::new(target, *port));
    SrvRecords::new(hosts.collect(), TTL)
}

/// Returns the TXT records of `name`. The strings of each record are joined.
pub fn txt(name: &str) -> Vec<Box<str>> {
    let own = TXT.iter().filter(|(own, _)| *own == name);
    own.map(|(_, strings)| strings.concat().into()).collect()
}
