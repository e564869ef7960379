//! Zone affinity, a preference for servers in the client's own zone.

use alloc::{boxed::Box, format, sync::Arc};

use sdam_core::{options::ConfigError, server::ServerDescription};

/// The maximum load of the servers in the client's zone, as a multiple of the mean load, if the
/// share of clients in that zone is known.
const MAX_LOAD: f64 = 1.25;

/// A preference for servers in the client's own zone, such as an availability zone: traffic within
/// a zone is faster, and often free.
///
/// A selection first determines the suitable servers: by type, staleness, tags, deprioritized
/// addresses and selectors. If some of them are in the client's zone, it chooses only among those;
/// otherwise, it chooses among all suitable servers. The latency window is applied afterwards;
/// without zone affinity, a window of 15 ms usually includes the other zones of a region. A write
/// to a replica set still goes to the primary.
///
/// ```
/// use sdam_select::{settings::Settings, zone::ZoneAffinity};
///
/// let affinity = ZoneAffinity::by_tag("zone", "use1-az2").with_client_share(0.8)?;
/// let settings = Settings::default().with_zone_affinity(affinity);
/// # assert!(settings.zone_affinity.is_some());
/// # Ok::<(), sdam_core::options::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ZoneAffinity {
    zone: Zone,
    pub(crate) uses_local_primary: bool,
    client_share: f64,
}

/// The condition for a server in the client's zone.
#[derive(Clone, Debug)]
enum Zone {
    Tag { name: Box<str>, value: Box<str> },
    Function(IsLocal),
}

#[derive(Clone)]
struct IsLocal(Arc<dyn Fn(&ServerDescription) -> bool + Send + Sync>);

sdam_core::opaque!(IsLocal);

impl ZoneAffinity {
    /// Prefers members of a replica set that have the tag `name` with this value. Routers
    /// (`mongos`) have no tags.
    pub fn by_tag(name: &str, value: &str) -> Self {
        Self::of(Zone::Tag { name: name.into(), value: value.into() })
    }

    /// Prefers servers for which `is_local` returns true, for example by address.
    ///
    /// `is_local` is called several times for each server, on the thread of the selection, without
    /// holding a lock. It should be quick, and always return the same value for the same server.
    pub fn by(is_local: impl Fn(&ServerDescription) -> bool + Send + Sync + 'static) -> Self {
        Self::of(Zone::Function(IsLocal(Arc::new(is_local))))
    }

    fn of(zone: Zone) -> Self {
        Self { zone, uses_local_primary: false, client_share: 0.0 }
    }

    /// Makes reads with mode `secondaryPreferred` use a primary in the client's zone, if it
    /// satisfies their tags, rather than secondaries in other zones.
    #[must_use]
    pub fn with_local_primary(mut self) -> Self {
        self.uses_local_primary = true;
        self
    }

    /// Sets the share of all clients that are in this client's zone, from 0 to 1, which limits the
    /// load of the servers there. 0, the default, means that the share is unknown, and sets no
    /// limit.
    ///
    /// If most clients are in a zone with few servers, those servers would get most of the load. A
    /// client that knows the share chooses servers of other zones for some of its selections, so
    /// that the local servers have at most 1.25 times the mean load from clients of their zone.
    ///
    /// # Errors
    ///
    /// If `share` is not a number from 0 to 1.
    pub fn with_client_share(mut self, share: f64) -> Result<Self, ConfigError> {
        if !(0.0..=1.0).contains(&share) {
            let remedy = "divide the number of clients in the zone by the number of all clients";
            let value = format!("{share}");
            let reason = "it is not within 0 and 1";
            return Err(ConfigError::new("client share", value, reason, remedy));
        }
        self.client_share = share;
        Ok(self)
    }

    /// Returns whether `server` is in the client's zone.
    pub(crate) fn is_local(&self, server: &ServerDescription) -> bool {
        match &self.zone {
            Zone::Tag { name, value } => server.tags.value(name) == Some(value),
            Zone::Function(IsLocal(function)) => function(server),
        }
    }

    /// Divides the suitable servers by zone.
    pub(crate) fn divide<'s>(
        &self,
        suitable: impl Iterator<Item = &'s ServerDescription>,
    ) -> Division<'_> {
        let (mut local, mut all) = (0_u32, 0_u32);
        for server in suitable {
            all += 1;
            local += u32::from(self.is_local(server));
        }
        let is_divided = 0 < local && local < all;
        let bound = MAX_LOAD * f64::from(local) / f64::from(all) / self.client_share;
        Division { affinity: self, local: is_divided.then_some(bound.min(1.0)) }
    }
}

/// The suitable servers, divided into those in the client's zone and the others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Division<'a> {
    affinity: &'a ZoneAffinity,
    /// The fraction of selections that choose among local servers; `None` if every selection
    /// chooses among all servers.
    local: Option<f64>,
}

impl<'a> Division<'a> {
    /// Returns the part of the suitable servers from which a selection with these random bits
    /// chooses.
    pub(crate) fn draw(&self, random: u64) -> Part<'a> {
        // The same bits also choose a server, so they are mixed first to keep the two choices
        // independent.
        let draw = random.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let is_local = |fraction| (draw as f64) < fraction * 4_294_967_296.0;
        Part { affinity: self.affinity, local: self.local.map(is_local) }
    }

    /// Returns all parts from which a selection may choose.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Part<'a>> {
        let part = |local| Part { affinity: self.affinity, local };
        let others = self.local.is_some_and(|fraction| fraction < 1.0);
        [Some(part(self.local.map(|_| true))), others.then(|| part(Some(false)))]
            .into_iter()
            .flatten()
    }
}

/// A part of the suitable servers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    affinity: &'a ZoneAffinity,
    local: Option<bool>,
}

impl Part<'_> {
    /// Returns whether a suitable server belongs to this part.
    pub(crate) fn contains(&self, server: &ServerDescription) -> bool {
        self.local.is_none_or(|local| self.affinity.is_local(server) == local)
    }
}

#[cfg(test)]
mod tests;
