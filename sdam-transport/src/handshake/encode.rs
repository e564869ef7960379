//! Encoding of the `client` document, shortened until it fits.

use super::{ClientMetadata, DELIMITER, FaasProvider, Library, cut};

pub(super) fn encode(metadata: &ClientMetadata) -> Box<[u8]> {
    let mut plan = Plan {
        environment: Detail::Full,
        os: Detail::Full,
        platform: join_platforms(&metadata.libraries),
        libraries: metadata.libraries.len(),
    };
    let mut document = plan.write(metadata);
    // Handshake: "Limitations", in this order.
    let steps: [fn(&mut Plan); 3] = [
        |plan| plan.environment = Detail::Essential,
        |plan| plan.os = Detail::Essential,
        |plan| plan.environment = Detail::None,
    ];
    for step in steps {
        if document.len() <= ClientMetadata::MAX_LENGTH {
            break;
        }
        step(&mut plan);
        document = plan.write(metadata);
    }
    while document.len() > ClientMetadata::MAX_LENGTH {
        if plan.platform.is_empty() {
            if plan.libraries <= 1 {
                // Unreachable: the driver's own texts are limited so that they always fit.
                break;
            }
            plan.libraries -= 1;
        } else {
            let excess = document.len() - ClientMetadata::MAX_LENGTH;
            let kept = plan.platform.len().saturating_sub(excess);
            plan.platform = cut(&plan.platform, kept).to_owned();
        }
        document = plan.write(metadata);
    }
    document.into()
}

/// Which parts of the metadata to write.
struct Plan {
    environment: Detail,
    os: Detail,
    /// Empty if left out.
    platform: String,
    /// The number of libraries, the driver included.
    libraries: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Detail {
    None,
    /// Only the name of the provider, or the type of the system.
    Essential,
    Full,
}

impl Plan {
    fn write(&self, metadata: &ClientMetadata) -> Vec<u8> {
        let mut client = Writer::default();
        if let Some(application) = &metadata.application {
            client.document("application", |document| document.text("name", application));
        }
        let libraries = metadata.libraries.iter().take(self.libraries);
        client.document("driver", |document| {
            // One entry for each library, even without a version, so that the two can be matched.
            document.text("name", &join(libraries.clone().map(|own| &*own.name)));
            let versions = libraries.map(|own| own.version.as_deref().unwrap_or_default());
            document.text("version", &join(versions));
        });
        let os = metadata.environment.os();
        client.document("os", |document| {
            document.text("type", &os.kind);
            if self.os == Detail::Full {
                document.optional_text("name", os.name.as_deref());
                document.optional_text("architecture", os.architecture.as_deref());
                document.optional_text("version", os.version.as_deref());
            }
        });
        if !self.platform.is_empty() {
            client.text("platform", &self.platform);
        }
        let environment = &metadata.environment;
        client.optional_document("env", |document| {
            if self.environment >= Detail::Essential {
                let provider = environment.faas_provider();
                document.optional_text("name", provider.map(FaasProvider::as_str));
            }
            if self.environment == Detail::Full {
                document.optional_int32("timeout_sec", environment.timeout_sec());
                document.optional_int32("memory_mb", environment.memory_mb());
                document.optional_text("region", environment.region());
                document.optional_document("container", |container| {
                    container.optional_text("runtime", environment.container_runtime());
                    container.optional_text("orchestrator", environment.container_orchestrator());
                });
            }
        });
        client.finish()
    }
}

fn join<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let mut joined = String::new();
    for (index, text) in texts.enumerate() {
        if index > 0 {
            joined.push(DELIMITER);
        }
        joined.push_str(text);
    }
    joined
}

fn join_platforms(libraries: &[Library]) -> String {
    join(libraries.iter().filter_map(|own| own.platform.as_deref()))
}

/// A BSON document being written.
#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn key(&mut self, element_type: u8, key: &'static str) {
        self.0.push(element_type);
        self.0.extend_from_slice(key.as_bytes());
        self.0.push(0);
    }

    fn length(&mut self, length: usize) {
        // All texts are in memory and the whole is checked against 512 bytes.
        self.0.extend_from_slice(&(length as i32).to_le_bytes());
    }

    fn text(&mut self, key: &'static str, text: &str) {
        self.key(0x02, key);
        self.length(text.len() + 1);
        self.0.extend_from_slice(text.as_bytes());
        self.0.push(0);
    }

    fn optional_text(&mut self, key: &'static str, text: Option<&str>) {
        if let Some(text) = text {
            self.text(key, text);
        }
    }

    fn optional_int32(&mut self, key: &'static str, number: Option<i32>) {
        if let Some(number) = number {
            self.key(0x10, key);
            self.0.extend_from_slice(&number.to_le_bytes());
        }
    }

    fn document(&mut self, key: &'static str, write: impl FnOnce(&mut Self)) {
        let mut document = Self::default();
        write(&mut document);
        self.key(0x03, key);
        self.0.extend_from_slice(&document.finish());
    }

    /// Writes a document, unless it is empty.
    fn optional_document(&mut self, key: &'static str, write: impl FnOnce(&mut Self)) {
        let mut document = Self::default();
        write(&mut document);
        if !document.0.is_empty() {
            self.key(0x03, key);
            self.0.extend_from_slice(&document.finish());
        }
    }

    fn finish(self) -> Vec<u8> {
        let mut document = Self(Vec::with_capacity(self.0.len() + 5));
        document.length(self.0.len() + 5);
        document.0.extend_from_slice(&self.0);
        document.0.push(0);
        document.0
    }
}
