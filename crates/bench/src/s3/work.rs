//! Requests of loads to a store.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::header::{ETAG, HeaderValue, RANGE};
use http::{Method, Request, StatusCode, response};
use http_body_util::Full;
use parking_lot::Mutex;

use super::store::Store;
use crate::distribution::Distribution;
use crate::error::{Error, Result};
use crate::load::Work;

/// Distance between the starts of two bodies in the noise that they share.
const SHIFT: u64 = 61;
/// Number of different starts.
const SHIFTS: u64 = 4096;

/// One request of a load.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Op {
    Put,
    Get,
    Head,
    List,
    Delete,
}

/// Order of the requests.
pub enum Order {
    /// Repeats one request, for a number of times if there is an end.
    Only(Op, Option<u64>),
    /// Chooses requests by weights.
    Mixed(Vec<(Op, f64)>),
    /// Stores parts of this upload, of `part` bytes each.
    Upload { upload: String, part: u64 },
    /// Reads ranges of one object, of `part` bytes each.
    Ranges { part: u64 },
}

pub struct S3Work {
    pub stores: Vec<Store>,
    pub order: Order,
    /// Prefix of all keys.
    pub prefix: String,
    pub sizes: Distribution,
    /// Number of objects that can be read; in an order in parts, the bytes of the one object.
    pub objects: u64,
    pub noise: Bytes,
    /// ETags of the parts that are stored.
    pub etags: Mutex<BTreeMap<u64, String>>,
}

/// Returns the bytes of noise that bodies of up to `most` bytes are cut from.
pub fn noise_bytes(most: u64) -> u64 {
    most + SHIFT * SHIFTS
}

impl S3Work {
    pub fn key(&self, number: u64) -> String {
        format!("{}{number:08}", self.prefix)
    }

    /// Returns the body for a number, different from that of its neighbours, without a copy.
    fn body(&self, number: u64, size: u64) -> Bytes {
        let start = (number % SHIFTS * SHIFT) as usize;
        self.noise.slice(start..start + size as usize)
    }

    /// Returns the bytes of a part that begins at `number` parts.
    fn part(&self, number: u64, part: u64) -> u64 {
        part.min(self.objects.saturating_sub(number * part))
    }

    fn op(&self, number: u64) -> Op {
        match &self.order {
            Order::Only(op, _) => *op,
            Order::Mixed(mix) => {
                let places = mix.iter().enumerate();
                let places = places.map(|(place, (_, weight))| (place as u64, *weight)).collect();
                let place = Distribution::Mixture(places).nth(number) as usize;
                mix[place].0
            }
            Order::Upload { .. } => Op::Put,
            Order::Ranges { .. } => Op::Get,
        }
    }

    fn single(&self, number: u64, store: &Store) -> Option<Request<Full<Bytes>>> {
        let (keys, bucket, none) = (store.keys(), &store.bucket, Bytes::new());
        let there = self.key(number % self.objects.max(1));
        match self.op(number) {
            Op::Put => {
                let key = match self.order {
                    // A separate name, so that objects which are read are not replaced.
                    Order::Mixed(_) => format!("{}put-{number:08}", self.prefix),
                    _ => self.key(number),
                };
                let body = self.body(number, self.sizes.nth(number));
                store.request(Method::PUT, &bucket.put_object(keys, &key), body)
            }
            Op::Get => store.request(Method::GET, &bucket.get_object(keys, &there), none),
            Op::Head => store.request(Method::HEAD, &bucket.head_object(keys, &there), none),
            Op::Delete => {
                let key = match self.order {
                    Order::Mixed(_) => {
                        format!("{}put-{:08}", self.prefix, number.saturating_sub(7))
                    }
                    _ => self.key(number),
                };
                store.request(Method::DELETE, &bucket.delete_object(keys, &key), none)
            }
            Op::List => {
                let mut action = bucket.list_objects_v2(keys);
                action.with_prefix(self.prefix.as_str());
                store.request(Method::GET, &action, none)
            }
        }
    }
}

impl Work for S3Work {
    fn request(&self, number: u64, endpoint: usize) -> Option<Request<Full<Bytes>>> {
        let store = &self.stores[endpoint];
        let (keys, bucket) = (store.keys(), &store.bucket);
        match &self.order {
            Order::Only(_, Some(count)) if number >= *count => None,
            Order::Only(..) | Order::Mixed(_) => self.single(number, store),
            Order::Upload { upload, part } => {
                let bytes = self.part(number, *part);
                if bytes == 0 {
                    return None;
                }
                let (key, place) = (self.key(0), u16::try_from(number + 1).ok()?);
                let action = bucket.upload_part(keys, &key, place, upload);
                store.request(Method::PUT, &action, self.body(number, bytes))
            }
            Order::Ranges { part } => {
                let bytes = self.part(number, *part);
                if bytes == 0 {
                    return None;
                }
                let (key, start) = (self.key(0), number * part);
                let action = bucket.get_object(keys, &key);
                let mut request = store.request(Method::GET, &action, Bytes::new())?;
                let range = format!("bytes={start}-{}", start + bytes - 1);
                request.headers_mut().insert(RANGE, HeaderValue::from_str(&range).ok()?);
                Some(request)
            }
        }
    }

    fn answered(&self, number: u64, head: &response::Parts) {
        if let Order::Upload { .. } = self.order
            && let Some(etag) = head.headers.get(ETAG).and_then(|etag| etag.to_str().ok())
        {
            self.etags.lock().insert(number, etag.to_owned());
        }
    }

    fn sent_bytes(&self, number: u64) -> u64 {
        match &self.order {
            Order::Upload { part, .. } => self.part(number, *part),
            _ if self.op(number) == Op::Put => self.sizes.nth(number),
            _ => 0,
        }
    }

    fn expects(&self, status: StatusCode) -> bool {
        status.is_success()
    }
}

/// Parses the weights of `get=70,put=30`.
pub fn parse_mix(text: &str) -> Result<Vec<(Op, f64)>> {
    let wrong = || Error::usage(format!("--mix {text:?}: write it as in get=70,put=30"));
    let parts = text.split(',').map(|part| {
        let (name, weight) = part.split_once('=').ok_or_else(wrong)?;
        let op = match name {
            "put" => Op::Put,
            "get" => Op::Get,
            "head" => Op::Head,
            "list" => Op::List,
            "delete" => Op::Delete,
            _ => return Err(wrong()),
        };
        let weight: f64 = weight.parse().map_err(|_| wrong())?;
        (weight > 0.0 && weight.is_finite()).then_some((op, weight)).ok_or_else(wrong)
    });
    parts.collect()
}

/// Deletes keys.
pub struct Removal {
    pub store: Store,
    pub keys: Vec<String>,
}

impl Work for Removal {
    fn request(&self, number: u64, _: usize) -> Option<Request<Full<Bytes>>> {
        let key = self.keys.get(usize::try_from(number).ok()?)?;
        let action = self.store.bucket.delete_object(self.store.keys(), key);
        self.store.request(Method::DELETE, &action, Bytes::new())
    }

    fn expects(&self, status: StatusCode) -> bool {
        status.is_success() || status == StatusCode::NOT_FOUND
    }
}
