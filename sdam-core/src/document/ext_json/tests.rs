use std::{
    borrow::ToOwned,
    format,
    string::{String, ToString},
    vec,
    vec::Vec,
};

use bson::{
    Binary, Bson, DateTime, Decimal128, Document, JavaScriptCodeWithScope, Regex, Timestamp, doc,
    oid::ObjectId, raw::CString, spec::BinarySubtype,
};

use super::ExtendedJson;

fn bytes(document: &Document) -> Vec<u8> {
    document.to_vec().unwrap()
}

fn check(value: impl Into<Bson>, expected: &str) {
    let bytes = bytes(&doc! { "v": value.into() });
    let shown = ExtendedJson::new(&bytes).to_string();
    assert_eq!(shown, format!(r#"{{"v":{expected}}}"#));
    assert!(serde_json::from_str::<serde_json::Value>(&shown).is_ok(), "{shown}");
}

fn cstring(text: &str) -> CString {
    text.to_owned().try_into().unwrap()
}

#[test]
fn every_bson_type_has_its_relaxed_extended_json() {
    // Logs show documents in this format (K-2).
    check(1.5, "1.5");
    check(1.0, "1.0");
    check(-1e300, "-1e300");
    check(f64::NAN, r#"{"$numberDouble":"NaN"}"#);
    check(f64::NEG_INFINITY, r#"{"$numberDouble":"-Infinity"}"#);
    check("a\"\\\n\t\r\u{1}\u{7f}é", r#""a\"\\\n\t\r\u0001\u007fé""#);
    check(Bson::Array(vec![1.into(), "x".into(), Bson::Null]), r#"[1,"x",null]"#);
    check(doc! { "a": true, "b": { } }, r#"{"a":true,"b":{}}"#);
    check(i64::MAX, "9223372036854775807");
    check(ObjectId::from_bytes([1; 12]), r#"{"$oid":"010101010101010101010101"}"#);
    check(Timestamp { time: 5, increment: 6 }, r#"{"$timestamp":{"t":5,"i":6}}"#);
    let regex = Regex { pattern: cstring("a\"b"), options: cstring("i") };
    check(regex, r#"{"$regularExpression":{"pattern":"a\"b","options":"i"}}"#);
    check(Bson::JavaScriptCode("f()".into()), r#"{"$code":"f()"}"#);
    let code = JavaScriptCodeWithScope { code: "f()".into(), scope: doc! { "x": 1 } };
    check(code, r#"{"$code":"f()","$scope":{"x":1}}"#);
    check(Bson::Symbol("s".into()), r#"{"$symbol":"s"}"#);
    check(Bson::Undefined, r#"{"$undefined":true}"#);
    check(Bson::MinKey, r#"{"$minKey":1}"#);
    check(Bson::MaxKey, r#"{"$maxKey":1}"#);
    let decimal: Decimal128 = "1.5E+10".parse().unwrap();
    check(decimal, r#"{"$numberDecimal":"1.5E+10"}"#);
}

#[test]
fn dates_from_1970_to_9999_are_iso_8601() {
    let date = DateTime::from_millis;
    check(date(0), r#"{"$date":"1970-01-01T00:00:00Z"}"#);
    check(date(1_356_351_330_501), r#"{"$date":"2012-12-24T12:15:30.501Z"}"#);
    check(date(1_356_351_330_500), r#"{"$date":"2012-12-24T12:15:30.500Z"}"#);
    // The leap day at the end of a 400-year cycle.
    check(date(951_782_400_000), r#"{"$date":"2000-02-29T00:00:00Z"}"#);
    check(date(-1), r#"{"$date":{"$numberLong":"-1"}}"#);
    check(date(253_402_300_800_000), r#"{"$date":{"$numberLong":"253402300800000"}}"#);
}

#[test]
fn binary_is_padded_base64_with_its_subtype() {
    for (text, base64) in [
        ("", ""),
        ("f", "Zg=="),
        ("fo", "Zm8="),
        ("foo", "Zm9v"),
        ("foobar", "Zm9vYmFy"),
        ("\u{3ff}?>", "z78/Pg=="),
    ] {
        let binary = Binary { subtype: BinarySubtype::UserDefined(0x81), bytes: text.into() };
        check(binary, &format!(r#"{{"$binary":{{"base64":"{base64}","subType":"81"}}}}"#));
    }
}

#[test]
fn text_is_cut_between_characters_at_the_limit() {
    // Documents in logs are truncated by characters, not by bytes (K-2).
    let bytes = bytes(&doc! { "k": "äöü" });
    let whole = r#"{"k":"äöü"}"#;
    let length = whole.chars().count();
    for limit in 0..length {
        let start: String = whole.chars().take(limit).collect();
        let shown = ExtendedJson::new(&bytes).limited_to(limit).to_string();
        assert_eq!(shown, format!("{start}..."));
    }
    assert_eq!(ExtendedJson::new(&bytes).limited_to(length).to_string(), whole);
}

#[test]
fn malformed_bson_is_shown_up_to_the_first_error() {
    assert_eq!(ExtendedJson::new(b"x").to_string(), "<malformed BSON>");
    let mut bytes = bytes(&doc! { "a": 1, "b": "text" });
    // The length of the string now points beyond the document.
    let length = bytes.iter().rposition(|byte| *byte == 5).unwrap();
    bytes[length] = 200;
    assert_eq!(ExtendedJson::new(&bytes).to_string(), r#"{"a":1<malformed BSON>"#);
}
