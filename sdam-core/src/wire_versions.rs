//! Ranges of wire versions.

/// The wire versions that a server supports.
#[doc(alias("minWireVersion", "maxWireVersion"))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WireVersions {
    /// `minWireVersion`, 0 if the server gave none.
    pub min: i32,
    /// `maxWireVersion`, 0 if the server gave none.
    pub max: i32,
}
