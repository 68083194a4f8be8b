//! Rows of a view, decoded and encoded.

use bytes::Bytes;
use cairn_base::Error;

use crate::rows::Row;
use crate::{Stop, View};

/// The row of `key`, decoded.
pub fn load<T: Row>(view: &mut View<'_>, key: &Bytes) -> Result<Option<T>, Stop> {
    Ok(view.get(key)?.as_ref().map(T::decode).transpose()?)
}

/// A row that another row says must exist.
pub fn load_known<T: Row>(view: &mut View<'_>, key: &Bytes, what: &str) -> Result<T, Stop> {
    match load(view, key)? {
        Some(row) => Ok(row),
        None => Err(Error::corrupt(what, "no row", format!("{key:?}")).into()),
    }
}

pub fn store<T: Row>(view: &mut View<'_>, key: Bytes, row: &T) {
    view.put(key, row.encode());
}
