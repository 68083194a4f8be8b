//! Rows sent to another node, in the form in which they are stored, so that a field that one side
//! does not know passes through it.

use std::fmt;
use std::marker::PhantomData;

use bytes::Bytes;
use serde::de::{Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

use super::extents::{decode_one, encode_one};
use super::{
    AccessKey, Bucket, Export, Extent, Extents, Inode, ObjectAttributes, Part, Resumable, Row,
    Session, ShareLink, Tally, Token, Upload, Usage,
};

/// A value with a stored form.
trait StoredForm: Sized {
    fn stored(&self) -> Bytes;

    fn restored(stored: &Bytes) -> cairn_base::Result<Self>;
}

impl<R: Row> StoredForm for R {
    fn stored(&self) -> Bytes {
        self.encode()
    }

    fn restored(stored: &Bytes) -> cairn_base::Result<R> {
        R::decode(stored)
    }
}

impl StoredForm for Extent {
    fn stored(&self) -> Bytes {
        encode_one(self)
    }

    fn restored(stored: &Bytes) -> cairn_base::Result<Extent> {
        decode_one(stored)
    }
}

macro_rules! sent_as_stored {
    ($($row:ident)*) => {
        $(impl Serialize for $row {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_newtype_struct(stringify!($row), &RowBytes(self.stored()))
            }
        }

        impl<'de> serde::Deserialize<'de> for $row {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$row, D::Error> {
                let read = RowVisitor::<$row>(PhantomData);
                deserializer.deserialize_newtype_struct(stringify!($row), read)
            }
        })*
    };
}

sent_as_stored! {
    AccessKey Bucket Export Extent Extents Inode ObjectAttributes Part Resumable Session ShareLink
    Tally Token Upload Usage
}

struct RowBytes(Bytes);

impl Serialize for RowBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

struct RowVisitor<R>(PhantomData<R>);

impl<'de, R: StoredForm> Visitor<'de> for RowVisitor<R> {
    type Value = R;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a row as it is stored")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<R, D::Error> {
        deserializer.deserialize_bytes(self)
    }

    fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<R, E> {
        R::restored(&Bytes::copy_from_slice(bytes)).map_err(E::custom)
    }
}
