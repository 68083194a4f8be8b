//! Loads and stores typed rows of a view.

use bytes::Bytes;
use cairn_base::Error;

use crate::rows::Row;
use crate::{Stop, View};

/// Loads and decodes the row of `key`.
pub fn load<T: Row>(view: &mut View<'_>, key: &Bytes) -> Result<Option<T>, Stop> {
    Ok(view.get(key)?.as_ref().map(T::decode).transpose()?)
}

/// Loads a row that must exist according to another row.
pub fn load_known<T: Row>(view: &mut View<'_>, key: &Bytes, what: &str) -> Result<T, Stop> {
    match load(view, key)? {
        Some(row) => Ok(row),
        None => Err(Error::corrupt(what, "no row", format!("{key:?}")).into()),
    }
}

pub fn store<T: Row>(view: &mut View<'_>, key: Bytes, row: &T) {
    view.put(key, row.encode());
}
