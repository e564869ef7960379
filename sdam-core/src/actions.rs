//! The list of actions that a call to a state machine returns.

use core::{iter, slice};

use smallvec::SmallVec;

/// A list of actions, in the order in which they must run.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "actions carry commands to connections and pools"]
pub struct Actions<T>(SmallVec<[T; 8]>);

impl<T> Actions<T> {
    pub(crate) fn one(action: T) -> Self {
        Self(iter::once(action).collect())
    }

    pub(crate) fn push(&mut self, action: T) {
        self.0.push(action);
    }

    pub(crate) fn extend(&mut self, actions: impl IntoIterator<Item = T>) {
        self.0.extend(actions);
    }

    /// Returns whether there are no actions.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over the actions, in order.
    pub fn iter(&self) -> slice::Iter<'_, T> {
        self.0.iter()
    }
}

impl<T> Default for Actions<T> {
    fn default() -> Self {
        Self(SmallVec::new())
    }
}

impl<T> IntoIterator for Actions<T> {
    type Item = T;
    type IntoIter = smallvec::IntoIter<[T; 8]>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a, T> IntoIterator for &'a Actions<T> {
    type Item = &'a T;
    type IntoIter = slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
