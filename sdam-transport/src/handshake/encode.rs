//! Encodes the `client` document, and shortens it until it fits.

use sdam_core::document::DocumentWriter;

use super::{ClientMetadata, DELIMITER, FaasProvider, cut};

pub(super) fn encode(metadata: &ClientMetadata) -> Box<[u8]> {
    let mut plan = Plan {
        environment: Detail::Full,
        os: Detail::Full,
        platform: join(metadata.libraries.iter().filter_map(|own| own.platform.as_deref())),
        libraries: metadata.libraries.len(),
    };
    let mut document = plan.write(metadata);
    // The order is that of Handshake: "Limitations".
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
                // This is unreachable, because the limits on the driver's own strings ensure that
                // they always fit.
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

/// The parts of the metadata that are written.
struct Plan {
    environment: Detail,
    os: Detail,
    /// The platform; empty if omitted.
    platform: String,
    /// The number of libraries, including the driver.
    libraries: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Detail {
    None,
    /// Only the provider's name, or the operating system's type.
    Essential,
    Full,
}

impl Plan {
    fn write(&self, metadata: &ClientMetadata) -> Vec<u8> {
        let mut client = DocumentWriter::new();
        if let Some(application) = &metadata.application {
            client.document("application", |document| {
                document.text("name", &**application);
            });
        }
        let libraries = metadata.libraries.iter().take(self.libraries);
        client.document("driver", |document| {
            let names = join(libraries.clone().map(|own| &*own.name));
            document.text("name", names.as_str());
            // Metadata update prose test 1: a library without a version leaves the field unchanged.
            let versions = libraries.filter_map(|own| own.version.as_deref());
            document.text("version", join(versions).as_str());
        });
        let os = metadata.environment.os();
        client.document("os", |document| {
            document.text("type", &*os.kind);
            if self.os == Detail::Full {
                document.text("name", os.name.as_deref());
                document.text("architecture", os.architecture.as_deref());
                document.text("version", os.version.as_deref());
            }
        });
        if !self.platform.is_empty() {
            client.text("platform", self.platform.as_str());
        }
        let environment = &metadata.environment;
        client.document_unless_empty("env", |document| {
            if self.environment >= Detail::Essential {
                let provider = environment.faas_provider();
                document.text("name", provider.map(FaasProvider::as_str));
            }
            if self.environment == Detail::Full {
                let (region, memory_mb, timeout_sec) = environment.function();
                document.int32("timeout_sec", timeout_sec);
                document.int32("memory_mb", memory_mb);
                document.text("region", region);
                document.document_unless_empty("container", |container| {
                    container.text("runtime", environment.container_runtime());
                    container.text("orchestrator", environment.container_orchestrator());
                });
            }
        });
        client.finish()
    }
}

fn join<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    texts.collect::<Vec<_>>().join(DELIMITER)
}
