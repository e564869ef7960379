use super::Hello;
use crate::{document::SharedDocument, error::Error};

/// A parsed reply to hello, together with its document.
#[derive(Clone, Debug, PartialEq)]
pub struct HelloReply {
    /// The parsed reply, or the reason why it is an error.
    pub hello: Result<Hello, Error>,
    /// The reply, a BSON document; empty if it is not needed.
    pub document: SharedDocument,
}

impl HelloReply {
    /// Parses a reply.
    pub fn parse(document: impl Into<SharedDocument>) -> Self {
        let document = document.into();
        Self { hello: Hello::parse(&document), document }
    }
}

/// Creates a reply without its document.
impl From<Result<Hello, Error>> for HelloReply {
    fn from(hello: Result<Hello, Error>) -> Self {
        Self { hello, document: [].as_slice().into() }
    }
}

/// Serializes the document in base64. If there is no document, serializes the error, or `null` for
/// a success.
#[cfg(feature = "serde")]
mod serial {
    use alloc::string::String;

    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::IntoDeserializer};

    use super::{Error, Hello, HelloReply, SharedDocument};
    use crate::encoding::base64;

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Recorded {
        Document(String),
        Outcome(Option<Error>),
    }

    impl Serialize for HelloReply {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            if self.document.is_empty() {
                self.hello.as_ref().err().serialize(serializer)
            } else {
                base64::serialize(&self.document, serializer)
            }
        }
    }

    impl<'de> Deserialize<'de> for HelloReply {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            Ok(match Recorded::deserialize(deserializer)? {
                Recorded::Document(text) => {
                    let document: SharedDocument = base64::deserialize(text.into_deserializer())?;
                    Self::parse(document)
                }
                Recorded::Outcome(error) => error.map_or_else(|| Ok(Hello::default()), Err).into(),
            })
        }
    }
}
