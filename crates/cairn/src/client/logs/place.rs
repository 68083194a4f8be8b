//! Places of logs: a bucket, and a file for each source and day.

use std::io::{BufReader, Read};

use cairn_logs::day;

use super::super::address::Address;
use super::super::api;
use super::times::Range;
use crate::connection::Server;
use crate::failure::{Failure, Result};

/// Prefix of the names of buckets for records.
const BUCKETS: &str = "logs-";
/// Suffix of the names of day files.
const END: &str = ".jsonl";
/// Bytes of a file that are read at once.
const BUFFER: usize = 256 << 10;

/// A day file of a source.
pub struct DayFile {
    pub source: String,
    /// Number of its day, see [`day`].
    pub day: i64,
    pub size: u64,
}

impl DayFile {
    pub fn name(&self) -> String {
        format!("{}/{}{END}", self.source, day::name(self.day))
    }

    /// Opens the whole file. Returns its length and a reader; `None` if it is gone.
    pub fn open(
        &self,
        server: &Server,
        bucket: &str,
    ) -> Result<Option<(u64, BufReader<impl Read>)>> {
        let path = address(bucket, &self.name()).path();
        match server.send("GET", &format!("{path}?no-redirect")) {
            Ok(reply) => {
                let (length, reader) = reply.into_reader();
                let missing = || Failure::new(format!("{}: the reply has no length", self.name()));
                Ok(Some((length.ok_or_else(missing)?, BufReader::with_capacity(BUFFER, reader))))
            }
            Err(failure) if failure.is_not_found() => Ok(None),
            Err(failure) => Err(failure),
        }
    }
}

pub fn address(bucket: &str, key: &str) -> Address {
    Address { bucket: bucket.to_owned(), key: key.to_owned() }
}

/// Returns the named bucket, or else the only one.
pub fn bucket(server: &Server, named: Option<&str>) -> Result<String> {
    if let Some(named) = named {
        return Ok(named.to_owned());
    }
    let buckets = api::buckets(server)?.into_iter().map(|bucket| bucket.name);
    let buckets: Vec<String> = buckets.filter(|name| name.starts_with(BUCKETS)).collect();
    match &buckets[..] {
        [only] => Ok(only.clone()),
        [] => {
            let text = "there is no bucket of logs that you may read: name one with --bucket";
            Err(Failure::not_found(text))
        }
        [first, ..] => Err(Failure::usage(format!(
            "you may read {} buckets of logs: name one with --bucket, such as {first}",
            buckets.len()
        ))),
    }
}

/// Returns the files of a source, or of all, in the order of sources and days.
pub fn files(server: &Server, bucket: &str, source: Option<&str>) -> Result<Vec<DayFile>> {
    let prefix = source.map_or_else(String::new, |source| format!("{source}/"));
    let mut files = Vec::new();
    api::each_object(server, &address(bucket, &prefix), &mut |object| {
        let parts = object.key.split_once('/');
        let parsed = parts.and_then(|(source, name)| {
            Some((source.to_owned(), day::parse(name.strip_suffix(END)?)?))
        });
        if let Some((source, day)) = parsed {
            files.push(DayFile { source, day, size: object.size });
        }
        Ok(())
    })?;
    Ok(files)
}

/// Returns the files of a source that may have records within a range of times.
pub fn files_of(
    server: &Server,
    bucket: &str,
    source: &str,
    range: &Range,
) -> Result<Vec<DayFile>> {
    let mut files = files(server, bucket, Some(source))?;
    if files.is_empty() {
        let text = format!("source {source}: bucket {bucket} has none, see cairn logs ls");
        return Err(Failure::not_found(text));
    }
    files.retain(|file| range.has_day(&day::name(file.day)));
    Ok(files)
}
