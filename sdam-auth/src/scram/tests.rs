use proptest::prelude::*;

use super::*;
use crate::testing::{ServerConversation, StoredUser};

const NONCE: &str = "fyko+d2lbbFgONRv9qkxdawL";

/// A published conversation.
struct Vector {
    mechanism: Mechanism,
    /// The prepared secret.
    secret: String,
    nonce: &'static str,
    server_first: &'static str,
    client_final: &'static str,
    server_final: &'static str,
}

impl Vector {
    /// Processes the server's first message, and returns the challenge and the keys.
    fn challenge(&self, first: &ClientFirst) -> (Challenge, Arc<Keys>) {
        let challenge = first.challenge(self.server_first.as_bytes()).unwrap();
        let (salt, iterations) = (challenge.salt(), challenge.iterations());
        let keys = Keys::derive(self.mechanism, &self.secret, salt, iterations);
        (challenge, Arc::new(keys))
    }
}

fn vectors() -> Vec<Vector> {
    let digest = Mechanism::ScramSha1.prepare("user", "pencil").unwrap();
    vec![
        // The example of RFC 5802, section 5.
        Vector {
            mechanism: Mechanism::ScramSha1,
            secret: "pencil".into(),
            nonce: NONCE,
            server_first: "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
            client_final: "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,\
                           p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
            server_final: "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
        },
        // The example of Authentication: "SCRAM-SHA-1", "Conversation".
        Vector {
            mechanism: Mechanism::ScramSha1,
            secret: digest.to_string(),
            nonce: NONCE,
            server_first: "r=fyko+d2lbbFgONRv9qkxdawLHo+Vgk7qvUOKUwuWLIWg4l/9SraGMHEE,\
                           s=rQ9ZY3MntBeuP3E1TDVC4w==,i=10000",
            client_final: "c=biws,r=fyko+d2lbbFgONRv9qkxdawLHo+Vgk7qvUOKUwuWLIWg4l/9SraGMHEE,\
                           p=MC2T8BvbmWRckDw8oWl5IVghwCY=",
            server_final: "v=UMWeI25JD1yNYZRMpZ4VHvhZ9e0=",
        },
        // The example of RFC 7677, section 3, and Authentication: "SCRAM-SHA-256", "Conversation".
        Vector {
            mechanism: Mechanism::ScramSha256,
            secret: "pencil".into(),
            nonce: "rOprNGfwEbeRWgbNEkqO",
            server_first: "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                           s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            client_final: "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                           p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
            server_final: "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
        },
    ]
}

#[test]
fn the_published_conversations_are_spoken_byte_for_byte() {
    // The conversations are those of RFC 5802 and RFC 7677 (T-1).
    for vector in vectors() {
        let first = ClientFirst::new("user", vector.nonce);
        let expected = format!("n,,n=user,r={}", vector.nonce);
        assert_eq!(first.message(), expected.as_bytes());
        let (challenge, keys) = vector.challenge(&first);
        let last = challenge.answer(keys);
        assert_eq!(str::from_utf8(last.message()), Ok(vector.client_final));
        assert_eq!(last.verify(vector.server_final.as_bytes()), Ok(()));
    }
}

#[test]
fn a_password_is_prepared_as_its_mechanism_requires() {
    // SCRAM-SHA-1 hashes passwords, and SCRAM-SHA-256 uses SASLprep (T-2).
    let check = |mechanism: Mechanism, user, password, expected: Result<&str, ScramError>| {
        let prepared = mechanism.prepare(user, password);
        let prepared = prepared.as_deref().map(String::as_str);
        assert_eq!(prepared, expected.as_ref().copied(), "{password:?}");
    };
    let sha_256 = Mechanism::ScramSha256;
    check(sha_256, "u", "IX", Ok("IX"));
    check(sha_256, "u", "I\u{ad}X", Ok("IX"));
    check(sha_256, "u", "\u{2163}", Ok("IV"));
    check(sha_256, "u", "I\u{ad}V", Ok("IV"));
    check(sha_256, "u", "", Ok(""));
    check(sha_256, "u", "a\u{7}", Err(ScramError::Password));
    check(sha_256, "u", "\u{627}1", Err(ScramError::Password));
    // `mongod` stores these digests of the user name and the password. It does not apply SASLprep
    // to them.
    let sha_1 = Mechanism::ScramSha1;
    let pencil = "1c33006ec1ffd90f9cadcbcc0e118200";
    check(sha_1, "user", "pencil", Ok(pencil));
    let plain = sha_1.prepare("\u{2168}", "\u{2163}").unwrap();
    assert_ne!(plain, sha_1.prepare("IX", "\u{2163}").unwrap());
    assert_ne!(plain, sha_1.prepare("\u{2168}", "IV").unwrap());
}

#[test]
fn a_first_message_of_the_server_that_breaks_a_rule_is_refused() {
    // The server's nonce and iteration count are checked (T-3).
    let first = ClientFirst::new("user", NONCE);
    let check = |message: &str, expected: ScramError| {
        let error = first.challenge(message.as_bytes()).unwrap_err();
        assert_eq!(error, expected, "{message}");
    };
    let malformed = ScramError::Malformed;
    let extended = format!("r={NONCE}x");
    check("", malformed("r"));
    check("e=other-error", malformed("r"));
    check(&extended, malformed("s"));
    check(&format!("{extended},s=QSXC"), malformed("i"));
    check(&format!("m=x,{extended},s=QSXC,i=4096"), malformed("r"));
    check(&format!("s=QSXC,{extended},i=4096"), malformed("r"));
    check(&format!("r={NONCE},s=QSXC,i=4096"), ScramError::Nonce);
    check("r=other,s=QSXC,i=4096", ScramError::Nonce);
    check(&format!("{extended},s=?,i=4096"), malformed("s"));
    check(&format!("{extended},s=,i=4096"), malformed("s"));
    for count in ["", "x", "+4096", "-1", "99999999999"] {
        check(&format!("{extended},s=QSXC,i={count}"), malformed("i"));
    }
    for count in [0, 1, MIN_ITERATIONS - 1, MAX_ITERATIONS + 1, u32::MAX] {
        check(&format!("{extended},s=QSXC,i={count}"), ScramError::Iterations(count));
    }
    let malformed = first.challenge(&[b'r', b'=', 0xff]).unwrap_err();
    assert_eq!(malformed, ScramError::Malformed("text"));
    for count in [MIN_ITERATIONS, MAX_ITERATIONS] {
        let challenge = first.challenge(format!("{extended},s=QSXC,i={count}").as_bytes());
        assert_eq!(challenge.unwrap().iterations(), count);
    }
}

#[test]
fn a_last_message_of_the_server_without_its_proof_is_refused() {
    // Only a valid signature proves that the server knows the user (T-4).
    let vector = vectors().remove(0);
    let (challenge, keys) = vector.challenge(&ClientFirst::new("user", vector.nonce));
    let last = challenge.answer(keys);
    let check = |message: &str, expected: ScramError| {
        assert_eq!(last.verify(message.as_bytes()), Err(expected), "{message}");
    };
    let malformed = ScramError::Malformed;
    check("", malformed("v"));
    check("v=", ScramError::Signature);
    check("v=AAAA", ScramError::Signature);
    check("v=?", malformed("v"));
    check("x=rmF9pqV8S7suAoZWja4dJRkFsKQ=", malformed("v"));
    check(&format!("{},x=y", vector.server_final), ScramError::Malformed("v"));
    check("e=invalid-proof", ScramError::Server("invalid-proof".into()));
    let error = ScramError::Server("invalid-proof".into()).to_string();
    assert_eq!(error, "the server ends the SCRAM conversation: invalid-proof");
}

#[test]
fn printing_a_conversation_reveals_nothing() {
    // Debug output must not contain a password or a key (T-23).
    let vector = vectors().remove(2);
    let first = ClientFirst::new("user", vector.nonce);
    let (challenge, keys) = vector.challenge(&first);
    let shown = format!("{first:?} {challenge:?} {keys:?}");
    let shown = format!("{shown} {:?}", challenge.answer(keys));
    for secret in [vector.nonce, "W22ZaJ0SNY7soEsUEjb6gQ", "dHzbZap", "["] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

/// Runs a complete conversation. `tamper` may change the server's messages: it is called with `0`
/// and the first message, and with `1` and the last message.
fn converse(
    mechanism: Mechanism,
    user: &str,
    passwords: [&str; 2],
    tamper: impl Fn(usize, Vec<u8>) -> Vec<u8>,
) -> Result<(), ScramError> {
    let [own, stored] = passwords;
    // The minimum number of iterations is enough to test messages; more iterations would only take
    // longer.
    let stored = StoredUser::new(mechanism, user, stored, b"0123456789abcdef", 4096).unwrap();
    let first = ClientFirst::new(user, NONCE);
    let message = first.message();
    assert_eq!(ServerConversation::user(&message).as_deref(), Some(user));
    let server = ServerConversation::begin(&message, &stored, "server").unwrap();
    let challenge = first.challenge(&tamper(0, server.message().into()))?;
    let same = challenge.salt() == stored.salt && challenge.iterations() == stored.iterations;
    let keys = if same && own == "pencil" {
        Arc::clone(&stored.keys)
    } else {
        let secret = mechanism.prepare(user, own)?;
        let iterations = challenge.iterations().min(5000);
        Arc::new(Keys::derive(mechanism, &secret, challenge.salt(), iterations))
    };
    let last = challenge.answer(keys);
    // A server that does not accept the proof may nevertheless send a final message.
    let reply = server.finish(last.message());
    last.verify(&tamper(1, reply.unwrap_or_else(|| b"v=AAAA".to_vec())))
}

#[test]
fn client_and_server_agree_on_every_user_and_on_the_right_password_only() {
    for mechanism in Mechanism::ALL {
        for user in ["user", "a=b,c", "=2C", "=3D", "\u{2168}", "n,,n=x,r=y"] {
            let agree = |passwords| converse(mechanism, user, passwords, |_, message| message);
            assert_eq!(agree(["pencil", "pencil"]), Ok(()), "{user}");
            assert_eq!(agree(["wrong", "pencil"]), Err(ScramError::Signature));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_changed_message_of_the_server_is_refused(
        sha_256: bool,
        message in 0..2_usize,
        place: prop::sample::Index,
        byte: u8,
        change in 0..3_u8,
    ) {
        // A changed nonce, iteration count or signature is detected (T-3, T-4).
        let mechanism = Mechanism::ALL[usize::from(sha_256)];
        let changed = std::cell::Cell::new(false);
        let outcome = converse(mechanism, "user", ["pencil", "pencil"], |which, mut text| {
            let original = text.clone();
            let at = place.index(text.len());
            match change {
                _ if which != message => {}
                0 => text[at] = byte,
                1 => text.insert(at, byte),
                _ => drop(text.remove(at)),
            }
            changed.set(changed.get() || text != original);
            text
        });
        prop_assert_eq!(outcome.is_err(), changed.get());
    }

    #[test]
    fn no_message_of_the_server_panics(first: Vec<u8>, last: Vec<u8>) {
        let client = ClientFirst::new("user", NONCE);
        prop_assert!(client.challenge(&first).is_err());
        let challenge = client.challenge(format!("r={NONCE}x,s=QSXC,i=4096").as_bytes()).unwrap();
        let keys = Keys::derive(Mechanism::ScramSha1, "secret", b"salt", 1);
        prop_assert!(challenge.answer(Arc::new(keys)).verify(&last).is_err());
    }
}

#[test]
fn keys_are_the_same_in_slices_of_any_length() {
    // Keys are derived in slices, so that other tasks run in between (O-12).
    for mechanism in Mechanism::ALL {
        for iterations in [1, 2, 100] {
            let whole = Keys::derive(mechanism, "secret", b"salt", iterations);
            for slice in [1, 7, 99, 100, 1000] {
                let mut derivation = Derivation::new(mechanism, "secret", b"salt", iterations);
                let slices = (iterations - 1).div_ceil(slice).max(1);
                for _ in 1..slices {
                    assert!(derivation.advance(slice).is_none());
                }
                let keys = derivation.advance(slice).unwrap();
                assert_eq!(keys.client_proof(b"m"), whole.client_proof(b"m"));
            }
        }
    }
}
