//! Types of the fields of [`Options`](crate::Options).

pub use sdam_core::options::{Detector, Warning};
pub use sdam_transport::{
    handshake::{ClientMetadata, DriverInfo},
    translate::{AddressTable, HostTranslation},
};
