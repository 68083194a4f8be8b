//! Backups in a bucket of a Cairn, through its HTTP door.

use std::io::Read;

use super::objects::{OBJECT_BYTES, Target};
use crate::client::address::Address;
use crate::client::api;
use crate::connection::Server;
use crate::failure::{Failure, Result};

pub struct Http {
    server: Server,
    bucket: String,
    /// Empty, or with a slash at its end.
    prefix: String,
}

impl Http {
    /// `path` is `/storage/BUCKET` and a prefix, as it is, without escapes.
    pub fn open(server: Server, path: &str) -> Result<Http> {
        let place = path.trim_start_matches("/storage/");
        let address = Address::parse(place)?;
        let prefix = match address.key.is_empty() {
            true => String::new(),
            false => format!("{}/", address.key),
        };
        Ok(Http { server, bucket: address.bucket, prefix })
    }

    fn address(&self, name: &str) -> Address {
        Address { bucket: self.bucket.clone(), key: format!("{}{name}", self.prefix) }
    }
}

impl Target for Http {
    fn put(&self, name: &str, bytes: Vec<u8>) -> Result<()> {
        let (length, mut body) = (bytes.len() as u64, bytes.as_slice());
        self.server.send_body("PUT", &self.address(name).path(), Some(length), &mut body)?;
        Ok(())
    }

    fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let path = format!("{}?no-redirect", self.address(name).path());
        let reply = match self.server.send("GET", &path) {
            Err(failure) if failure.is_not_found() => return Ok(None),
            reply => reply?,
        };
        let (length, body) = reply.into_reader();
        let mut bytes = Vec::new();
        let read = body.take(OBJECT_BYTES).read_to_end(&mut bytes);
        read.map_err(|error| Failure::new(format!("{name}: {error}")))?;
        match length.is_none_or(|length| length == bytes.len() as u64) {
            true => Ok(Some(bytes)),
            false => Err(Failure::new(format!("{name}: the reply was cut off"))),
        }
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        let mut names = Vec::new();
        api::each_object(&self.server, &self.address(prefix), &mut |object| {
            names.extend(object.key.strip_prefix(&self.prefix).map(str::to_owned));
            Ok(())
        })?;
        Ok(names)
    }

    fn remove(&self, name: &str) -> Result<()> {
        match self.server.send("DELETE", &self.address(name).path()) {
            Err(failure) if failure.is_not_found() => Ok(()),
            reply => reply.map(drop),
        }
    }
}
