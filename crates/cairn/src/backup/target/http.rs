//! Backups in a bucket of a Cairn, through its HTTP door.

use std::io::Read;
use std::ops::Range;

use bytes::Bytes;

use super::objects::{OBJECT_BYTES, Target, part_of};
use crate::client::address::Address;
use crate::client::api;
use crate::connection::http::Outgoing;
use crate::connection::{Reply, Server};
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
        let prefix =
            if address.key.is_empty() { String::new() } else { format!("{}/", address.key) };
        Ok(Http { server, bucket: address.bucket, prefix })
    }

    fn address(&self, name: &str) -> Address {
        Address { bucket: self.bucket.clone(), key: format!("{}{name}", self.prefix) }
    }

    fn send_put(&self, name: &str, bytes: &Bytes, headers: &[(&str, &str)]) -> Result<()> {
        let path = self.address(name).path();
        let body = Outgoing::Bytes(bytes.clone());
        let sent = self.server.request_with("PUT", path.as_str(), body, headers);
        sent.map(drop).map_err(|failure| self.said(failure))
    }

    /// `None` if there is no such object.
    fn send_get(&self, name: &str, headers: &[(&str, &str)]) -> Result<Option<Reply>> {
        let path = format!("{}?no-redirect", self.address(name).path());
        match self.server.request_with("GET", path.as_str(), Outgoing::Nothing, headers) {
            Err(failure) if failure.is_not_found() => Ok(None),
            reply => reply.map(Some).map_err(|failure| self.said(failure)),
        }
    }

    fn said(&self, failure: Failure) -> Failure {
        failure.of(format!("the target, bucket {}", self.bucket))
    }
}

fn read(name: &str, reply: Reply) -> Result<Vec<u8>> {
    let (length, body) = reply.into_reader();
    let mut bytes = Vec::new();
    let read = body.take(OBJECT_BYTES).read_to_end(&mut bytes);
    read.map_err(|error| Failure::new(format!("{name}: {error}")).passing())?;
    if length.is_none_or(|length| length == bytes.len() as u64) {
        Ok(bytes)
    } else {
        Err(Failure::new(format!("{name}: the reply was cut off")).passing())
    }
}

impl Target for Http {
    fn put(&self, name: &str, bytes: &Bytes) -> Result<()> {
        self.send_put(name, bytes, &[])
    }

    fn put_new(&self, name: &str, bytes: &Bytes) -> Result<bool> {
        match self.send_put(name, bytes, &[("if-none-match", "*")]) {
            Err(failure) if failure.is_unmet() => Ok(false),
            put => put.map(|()| true),
        }
    }

    fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.send_get(name, &[])?.map(|reply| read(name, reply)).transpose()
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Option<Vec<u8>>> {
        let header = format!("bytes={}-{}", range.start, range.end.saturating_sub(1));
        let Some(reply) = self.send_get(name, &[("range", header.as_str())])? else {
            return Ok(None);
        };
        let is_part = !reply.header("content-range").is_empty();
        let bytes = read(name, reply)?;
        Ok(Some(if is_part { bytes } else { part_of(&bytes, &range) }))
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        let mut names = Vec::new();
        let listed = api::each_object(&self.server, &self.address(prefix), &mut |object| {
            names.extend(object.key.strip_prefix(&self.prefix).map(str::to_owned));
            Ok(())
        });
        listed.map_err(|failure| self.said(failure))?;
        Ok(names)
    }

    fn remove(&self, name: &str) -> Result<()> {
        match self.server.send("DELETE", &self.address(name).path()) {
            Err(failure) if failure.is_not_found() => Ok(()),
            reply => reply.map(drop).map_err(|failure| self.said(failure)),
        }
    }
}
