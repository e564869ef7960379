//! The names of events.

use super::{EventKind, EventName};

impl EventName {
    /// All names, in the order of [`index`](Self::index).
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the specification's name, such as `ServerHeartbeatStarted`.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the name's index in [`ALL`](Self::ALL), for sets and tables of counters.
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl EventKind {
    /// Returns the kind without its payload.
    pub fn name(&self) -> EventName {
        self.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_indexed_in_the_order_in_which_they_are_listed() {
        for (index, name) in EventName::ALL.iter().enumerate() {
            assert_eq!(name.index(), index, "{}", name.as_str());
        }
    }

    #[test]
    fn events_have_the_specified_names() {
        // The names omit the word "event", which is part of the type's name (J-11).
        let specified = "TopologyOpening TopologyDescriptionChanged TopologyClosed ServerOpening \
             ServerDescriptionChanged ServerClosed ServerHeartbeatStarted ServerHeartbeatSucceeded \
             ServerHeartbeatFailed PoolCreated PoolReady PoolCleared PoolClosed ConnectionCreated \
             ConnectionReady ConnectionClosed ConnectionCheckOutStarted ConnectionCheckOutFailed \
             ConnectionCheckedOut ConnectionCheckedIn CommandStarted CommandSucceeded CommandFailed";
        for text in specified.split_whitespace() {
            let named = EventName::ALL.iter().filter(|name| name.as_str() == text);
            assert_eq!(named.count(), 1, "{text}");
        }
    }
}
