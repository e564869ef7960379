//! Checks that the parser agrees with a slow reference parser on arbitrary replies.

mod reference;

use std::sync::LazyLock;

use bson::{Bson, DateTime, Document, oid::ObjectId};
use proptest::{collection::vec, prelude::*, sample::select};
use sdam_core::{error::Stage, hello::Hello, reply};

/// The names of all fields that the parser reads, and of some that it ignores.
static KEYS: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let names = "$clusterTime $err arbiterOnly arbiters code codeName compression connectionId counter \
                 electionId err errmsg errorLabels helloOk hidden hosts isWritablePrimary iscryptd \
                 ismaster isreplicaset lastWrite lastWriteDate localTime logicalSessionTimeoutMinutes \
                 maxBsonObjectSize maxMessageSizeBytes maxWireVersion maxWriteBatchSize me \
                 minWireVersion msg ok passive passives primary processId saslSupportedMechs secondary \
                 serviceId setName setVersion tags topologyVersion writeConcernError writeErrors";
    names.split(' ').chain([""]).collect()
});

fn text() -> impl Strategy<Value = String> {
    let texts = "isdbgrid|rs0|a|A:27017|b:27018|B:027018|[::1]:1|[FE80::1]|c:|/tmp/A.sock|/tmp/a.sock||\
                 :|a:99999|not master";
    let texts: Vec<_> = texts.split('|').collect();
    prop_oneof![
        select(texts).prop_map(str::to_owned),
        "[a-cA-C]{1,2}(:[0-9]{1,5})?",
        any::<String>(),
    ]
}

fn leaf() -> impl Strategy<Value = Bson> {
    prop_oneof![
        text().prop_map(Bson::from),
        any::<bool>().prop_map(Bson::from),
        (-1..40_i32).prop_map(Bson::from),
        any::<i64>().prop_map(Bson::from),
        select(&[0.0, -0.0, 1.0, 0.5, 30.0, 1e10, 1e300, f64::NAN, f64::INFINITY][..])
            .prop_map(Bson::from),
        any::<f64>().prop_map(Bson::from),
        any::<[u8; 12]>().prop_map(|bytes| ObjectId::from_bytes(bytes).into()),
        any::<i64>().prop_map(|millis| DateTime::from_millis(millis).into()),
        select(&[Bson::Null, Bson::Undefined, Bson::MinKey, Bson::MaxKey][..]),
        text().prop_map(Bson::Symbol),
        text().prop_map(Bson::JavaScriptCode),
        vec(any::<u8>(), 0..9).prop_map(|bytes| {
            Bson::Binary(bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes })
        }),
    ]
}

fn collect(fields: Vec<(&str, Bson)>) -> Document {
    let fields = fields.into_iter();
    fields.map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Generates a field with a value of the correct type.
fn plausible(key: &'static str) -> BoxedStrategy<Bson> {
    let id = any::<[u8; 12]>().prop_map(|bytes| Bson::from(ObjectId::from_bytes(bytes)));
    let version = (id.clone(), any::<i64>());
    match key {
        "hosts" | "passives" | "arbiters" | "errorLabels" => {
            vec(text().prop_map(Bson::from), 0..6).prop_map(Bson::from).boxed()
        }
        "me" | "primary" | "msg" | "setName" | "errmsg" | "codeName" | "$err" | "err" => {
            text().prop_map(Bson::from).boxed()
        }
        "electionId" | "serviceId" | "processId" => id.boxed(),
        "topologyVersion" => version
            .prop_map(|(id, counter)| bson::bson!({ "processId": id, "counter": counter }))
            .boxed(),
        "lastWrite" => any::<i64>()
            .prop_map(|millis| bson::bson!({ "lastWriteDate": DateTime::from_millis(millis) }))
            .boxed(),
        "tags" | "writeConcernError" => vec((select(&KEYS[..]), leaf()), 0..12)
            .prop_map(|fields| Bson::from(collect(fields)))
            .boxed(),
        "ok" => select(Vec::from([1.into(), 1.0.into(), 0.into()])).boxed(),
        "hidden" | "secondary" | "isWritablePrimary" | "ismaster" | "arbiterOnly" | "helloOk" => {
            any::<bool>().prop_map(Bson::from).boxed()
        }
        _ => leaf().boxed(),
    }
}

fn any_value() -> impl Strategy<Value = Bson> {
    leaf().prop_recursive(3, 24, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Bson::from),
            vec((select(&KEYS[..]), inner), 0..6).prop_map(|fields| Bson::from(collect(fields))),
        ]
    })
}

fn reply() -> impl Strategy<Value = Document> {
    let field = select(&KEYS[..]).prop_flat_map(|key| {
        let value = prop_oneof![5 => plausible(key), 1 => any_value()];
        (Just(key), value)
    });
    let ok = prop_oneof![6 => Just(Some(Bson::from(1.0))), 1 => Just(None)];
    (vec(field, 0..24), ok).prop_map(|(fields, ok)| {
        let mut reply = collect(fields);
        if let Some(ok) = ok {
            reply.insert("ok", ok);
        }
        reply
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_parser_agrees_with_a_simple_reader(document in reply()) {
        // Both parsers read the same fields (C-2 to C-6, C-8, C-11 to C-16, C-22, C-29, L-18).
        let bytes = document.to_vec().unwrap();
        prop_assert_eq!(Hello::parse(&bytes), reference::parse(&document));
        // Both parsers find the same error (I-32, I-33, O-42, O-44).
        prop_assert_eq!(reply::error(&bytes, Stage::Hello), reference::error(&document));
    }
}
