//! User info, hosts, database, and the parts that error messages show and hide.

use super::*;
use crate::uri_options::HIDDEN;

#[test]
fn hosts_are_lower_cased_and_paths_are_not() {
    // The default port is added (B-3, B-5).
    let check = |hosts: &str, expected: &[&str]| {
        let string = parse(&format!("mongodb://{hosts}"));
        let shown: Vec<_> = string.hosts().iter().map(ToString::to_string).collect();
        assert_eq!(shown, expected, "{hosts}");
    };
    check("A", &["a:27017"]);
    check("B:2,A,[FE80::1]", &["b:2", "a:27017", "[fe80::1]:27017"]);
    check("[::1]:9/", &["[::1]:9"]);
    check("%2Ftmp%2FMongo.sock", &["/tmp/Mongo.sock"]);
    check("rel%2Fa%20b.sock/db", &["rel/a b.sock"]);
    // Without a slash, the host is not a path.
    check("db.sock", &["db.sock:27017"]);
    check("BÜCHER.example.com", &["bÜcher.example.com:27017"]);
    check("a?tls=true", &["a:27017"]);
}

#[test]
fn a_repeated_host_is_used_once() {
    let string = parse("mongodb://a,b,A:27017");
    assert_eq!(string.hosts().len(), 2);
    assert_eq!(warned(&string), ["host"]);
    let options = parse("mongodb://a,a/?directConnection=true").into_options();
    assert_eq!(options.unwrap().topology_type(), TopologyType::Single);
}

#[test]
fn a_malformed_string_is_refused_with_the_name_of_the_wrong_part() {
    for text in " a mongodb:/a mongo://a MONGODB://a :// mongodb+srv:a".split(' ') {
        check_refused(text, "connection string");
    }
    let hosts = " / ?a=b a, ,a a,,b a: a:0 a:65536 a:b a::1 [::1 [a] a% a%2 a%gg %ff %2Ftmp%2Fsocket \
                 %2F%00.sock %2Fa%0A.sock /tmp/a.sock u@ a%00";
    for hosts in hosts.split(' ').chain(["a b"]) {
        check_refused(&format!("mongodb://{hosts}"), "host");
    }
    for database in ["/a/b", "/a%2Fb", "/a b", "/$a", "/a\"", "/a\\b", "/a%", "/a@b", "/%00"] {
        check_refused(&format!("mongodb://a{database}"), "database");
    }
    check_refused("mongodb://@a", "user name");
    check_refused("mongodb://:p@a", "user name");
    check_refused("mongodb://u@v@a", "user name");
    check_refused("mongodb://u%x@a", "user name");
    check_refused("mongodb://u:p:q@a", "password");
    check_refused("mongodb://u:%@a", "password");
    check_refused("mongodb://u:%ff@a", "password");
}

#[test]
fn no_message_shows_a_piece_of_a_password() {
    // Errors and warnings may be logged, so they must not contain a secret (T-23).
    let check = |text: &str| {
        let shown = match ConnectionString::parse(text) {
            Ok(string) => {
                let warnings: Vec<_> = string.warnings().iter().map(ToString::to_string).collect();
                let options = string.clone().into_options();
                format!("{string:?} {warnings:?} {options:?}")
            }
            Err(error) => format!("{error} {error:?}"),
        };
        let shown = shown.to_ascii_lowercase();
        assert!(!shown.contains("qx7") && !shown.contains("zk9"), "{text} gives {shown}");
    };
    let separators = [
        "", "/", "?", "&", "=", ",", ":", "@", "#", "%", "%zz", "%2F", ";", "[", "]", "//", "/?",
        "?&", "@/", "/@", "?@", "@?", ":@",
    ];
    for first in separators {
        for second in separators {
            let password = format!("Qx7{first}Zk9{second}Qx7");
            check(&format!("mongodb://u:{password}@h"));
            check(&format!("mongodb://u:{password}@h/db?replicaSet=rs"));
            check(&format!("mongodb+srv://u:{password}@h.example.com/db"));
            check(&format!("mongo://u:{password}@h"));
        }
    }
    check("mongodb://u:Qx7?x=Zk9@h");
    // The host is missing in these strings, so the password is where a port would be.
    check("mongodb://u:Qx7");
    check("mongodb+srv://u:Qx7");
    // Some options are secret, even under a misspelled name.
    check("mongodb://a/?tlsCertificateKeyFilePassword=Qx7");
    check("mongodb://a/?tlsCertificateKeyFilePassword=Qx7&tlsCertificateKeyFilePassword=Zk9");
    check("mongodb://a/?proxyHost=b&proxyUsername=c&proxyPassword=Qx7");
    check("mongodb://a/?proxyHost=b&proxyPassword=Qx7&proxyPassword=Zk9");
    check("mongodb://a/?authMechanismProperties=AWS_SESSION_TOKEN:Qx7");
    check("mongodb://a/?authMechanismProperties=AWS_SESSION_TOKEN:Qx7,Zk9");
    check("mongodb://a/?passwort=Qx7");
}

#[test]
fn the_work_is_bounded_by_the_length_of_the_text() {
    // If the work were quadratic, this test would take minutes.
    let many = |piece: &dyn Fn(usize) -> String| -> String {
        (0..100_000).rev().map(piece).collect::<Vec<_>>().join(",")
    };
    let hosts = many(&|index| format!("h{index}"));
    assert!(ConnectionString::parse(&format!("mongodb://{hosts}")).is_err());
    let tags = many(&|index| format!("k{index}:v"));
    let text = format!("mongodb://a/?readPreference=nearest&readPreferenceTags={tags}");
    let sets = parse(&text).into_options().unwrap().read_preference.tag_sets;
    assert_eq!(sets[0].iter().len(), 100_000);
    let text = format!("mongodb://a/?{}", "x=&".repeat(100_000));
    assert_eq!(parse(&text).warnings().len(), 100_000);
}

#[test]
fn every_error_shows_the_given_value_and_a_remedy() {
    let check = |text: &str, expected: &str| {
        let error = Options::parse(text).unwrap_err();
        assert_eq!(error.to_string(), expected, "{text}");
        // `fn main() -> Result<(), ConfigError>` prints the error in this form.
        assert_eq!(format!("{error:?}"), expected);
    };
    check(
        "MONGODB://a",
        "`connection string` is `MONGODB://`: the scheme must be in lower case; begin it with \
         mongodb://",
    );
    check(
        "Mongodb+SRV://a",
        "`connection string` is `Mongodb+SRV://`: the scheme must be in lower case; begin it with \
         mongodb+srv://",
    );
    check(
        "mongo://a",
        "`connection string` is `mongo`: it has another scheme than MongoDB's; begin it with \
         mongodb:// or mongodb+srv://",
    );
    let text = "`connection string` is `localhost:27017,[::1]:27018`: it has no scheme; write \
                mongodb://localhost:27017,[::1]:27018";
    check("localhost:27017,[::1]:27018", text);
    let text = "`connection string`: it has no scheme; begin it with mongodb:// or mongodb+srv://";
    check("localhost", text);
    let text = "`host` is `::1`: an IPv6 address stands in brackets; write [::1] or [::1]:27017";
    check("mongodb://::1", text);
    check(
        "mongodb://2001:db8::a",
        "`host` is `2001:db8::a`: an IPv6 address stands in brackets; write [2001:db8::a] or \
         [2001:db8::a]:27017",
    );
    check(
        "mongodb://a::27017",
        "`host` is `a::27017`: it has more than one `:`, and only an IPv6 address in brackets may; \
         write host, host:port, [IPv6]:port or the path of a socket with every `/` as %2F",
    );
    check(
        "mongodb://a:abc",
        "`host` is `a:<hidden>`: the port must be a number from 1 to 65535; write host:port with a \
         number; if it is a user name and a password, write `@` and the host behind them, and \
         percent-encode `/`, `?` and `@` in them as %2F, %3F and %40",
    );
    check(
        "mongodb://a/?appname=x%",
        "`appname` is `x%`: a `%` is not followed by two hexadecimal digits; percent-encode `%` as \
         %25, `&` as %26 and `=` as %3D",
    );
    let text = "`tls` is `false`: it is given more than once; give it once, with one value";
    check("mongodb://a/?tls=true&ssl=false", text);
    check(
        "mongodb://a/?tlsInsecure=true&tlsAllowInvalidHostnames=true",
        "`tlsInsecure`: it contradicts `tlsAllowInvalidHostnames`; give one of the two",
    );
    check(
        "mongodb+srv://a.example.com",
        "`mongodb+srv` is `a.example.com`: the hosts have to be looked up first; pass \
         the result of `sdam::resolve` to `TopologyBuilder::new`, with the Cargo feature `srv` of \
         sdam; or pass the records to `ConnectionString::resolved`",
    );
}

#[test]
fn warnings_show_values_as_given() {
    let check = |options: &str, expected: &str| {
        let string = parse(&format!("mongodb://a/?{options}"));
        let texts: Vec<String> = string.warnings().iter().map(ToString::to_string).collect();
        assert_eq!(texts, [expected]);
        assert_eq!(format!("{:?}", string.warnings()), format!("[{expected}]"));
    };
    let more = "it is given more than once";
    check(
        "replicaSet=rs1&replicaSet=rs2",
        &format!("`replicaSet` is `rs2`: {more}; `rs2` is used"),
    );
    check(
        "connectTimeoutMS=5&connectTimeoutMS=7",
        &format!("`connectTimeoutMS` is `7`: {more}; `7` is used"),
    );
    check(
        "retryReads=true&retryReads=false",
        &format!("`retryReads` is `false`: {more}; `false` is used"),
    );
    check(
        "compressors=zlib&compressors=zstd,snappy",
        &format!("`compressors` is `zstd,snappy`: {more}; `zstd,snappy` is used"),
    );
    check("w=1&w=majority", &format!("`w` is `majority`: {more}; `majority` is used"));
    check(
        "authMechanismProperties=A:x&authMechanismProperties=A:y",
        &format!("`authMechanismProperties` is `<hidden>`: {more}; <hidden> is used"),
    );
    check(
        "tls=1",
        "`tls` is `1`: it must be `true` or `false`; no topology starts with it, as connections \
         would be unguarded",
    );
}

#[test]
fn white_space_at_the_end_is_left_out_with_a_warning() {
    for end in ["\n", " ", "\r\n", "\t \n"] {
        for start in ["mongodb://a/?replicaSet=rs", "mongodb://a:27017", "mongodb://u:p@a/db"] {
            let (string, trimmed) = (parse(&format!("{start}{end}")), parse(start));
            assert_eq!(string.hosts(), trimmed.hosts());
            assert!(string.options().eq(trimmed.options()));
            let expected = "`connection string`: it ends with white space, perhaps the line break \
                            of a file; that is left out";
            assert_eq!(string.warnings()[0].to_string(), expected);
            assert_eq!(string.warnings().len(), 1);
        }
    }
}

#[test]
fn control_characters_in_values_are_shown_escaped() {
    let error = ConnectionString::parse("mongodb://a,b\n,c").unwrap_err();
    assert!(error.to_string().starts_with("`host` is `b\\n`: "), "{error}");
    let string = parse("mongodb://a/?connectTimeoutMS=5%0A");
    let warning = string.warnings()[0].to_string();
    assert!(warning.starts_with("`connectTimeoutMS` is `5\\n`: "), "{warning}");
}

#[test]
fn a_misspelled_option_is_answered_with_the_name_that_was_meant() {
    for (option, name) in
        [("replicaSte=rs", "replicaSet"), ("localTresholdMS=20", "localThresholdMS")]
    {
        let text = parse(&format!("mongodb://a/?{option}")).warnings()[0].to_string();
        assert!(text.contains(&format!("(did you mean {name}?)")), "{text}");
    }
    // After an `@` in the options, the name might be part of a password.
    let string = parse("mongodb://a/?replicaSte=rs&appname=x@");
    assert!(!string.warnings()[0].to_string().contains("did you mean"));
}

#[test]
fn errors_show_the_wrong_part_unless_it_may_be_a_password() {
    let check = |text: &str, expected: &str| {
        let error = ConnectionString::parse(text).expect_err(text);
        assert_eq!(error.value(), expected, "{text}: {error}");
    };
    let host = |start: &str| format!("{start}:{HIDDEN}");
    check("mongodb://a:0", "a:0");
    check("mongodb://a:65536", "a:65536");
    check("mongodb://a:1-2", "a:1-2");
    check("mongodb://a:65536,b", "a:65536");
    check("mongodb://a b", "a b");
    check("mongodb://a:b", &host("a"));
    check("mongodb://a:1b", &host("a"));
    check("mongodb://a/b c", "b c");
    check("mongodb://u:p@a/b c", "b c");
    // The `/` may be part of a password that ends at the `@`.
    check("mongodb://u:p/q@a", HIDDEN);
}
