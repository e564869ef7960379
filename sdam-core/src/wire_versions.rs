//! Ranges of wire versions.

/// The range of wire versions that a server or the client supports.
#[doc(alias("minWireVersion", "maxWireVersion"))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct WireVersions {
    /// `minWireVersion`, 0 if the server did not report it.
    #[cfg_attr(feature = "serde", serde(rename = "minWireVersion"))]
    pub min: i32,
    /// `maxWireVersion`, 0 if the server did not report it.
    #[cfg_attr(feature = "serde", serde(rename = "maxWireVersion"))]
    pub max: i32,
}
