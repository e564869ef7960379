//! What a connection string says about every selection of a client.

use bson::rawdoc;
use sdam::topology::Topology;
use sdam_core::options::Options;
use sdam_select::criteria::Criteria;
use sdam_spec::engine::canned::Answer;

use crate::world::{World, hosts};

/// A topology with the options of `query` behind it.
fn start(world: &mut World, number: u16, query: &str) -> Topology {
    let hosts = hosts(number);
    let options = Options::parse(&format!("mongodb://a/?{query}")).unwrap();
    world.start(&hosts.clone(), |builder| {
        builder.options(|own| *own = options.with_seeds(hosts))
    })
}

/// B-24: the value of a tag may contain colons, so such a tag set restricts reads like any other.
#[test]
fn reads_go_to_the_member_whose_tag_has_a_colon_in_its_value() {
    let (mut world, hosts) = (World::new(), hosts(3));
    for (host, zone) in hosts.iter().zip(["a:a", "a:b", "a"]) {
        let mut members = bson::RawArrayBuf::new();
        for host in &hosts {
            members.push(host.as_str());
        }
        let reply = rawdoc! {
            "ok": 1, "ismaster": false, "secondary": true, "setName": "rs", "hosts": members,
            "tags": { "zone": zone }, "minWireVersion": 0, "maxWireVersion": 17,
        };
        world.servers.set(host, Answer::Reply(reply.into_bytes()));
    }
    let topology = start(
        &mut world,
        3,
        "readPreference=secondary&readPreferenceTags=zone:a:b",
    );
    let criteria = Criteria::read(topology.options().read_preference.clone()).unwrap();
    for _ in 0..20 {
        let selected = topology.try_select(&criteria).unwrap().unwrap();
        assert_eq!(*selected.address(), hosts[1]);
    }
}
