//! `cairn bench s3`: measures an S3 store.

mod store;
mod work;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use clap::builder::NonEmptyStringValueParser;
use parking_lot::Mutex;
use tokio_rustls::TlsConnector;

use crate::client::Target;
use crate::closed_loop::{Client, Time, named, noise};
use crate::distribution::Distribution;
use crate::error::{Error, Result};
use crate::load::{self, Pace, Plan, Sample};
use crate::report::{Axis, Key, NamedTarget};
use crate::session::{Case, Output, Session};
use crate::values::{self, human_size};
use store::{BODY_MAX, Hand, PARTS_MAX, Store, targets};
use work::{Op, Order, Removal, S3Work, noise_bytes, parse_mix};

/// Connections that prepare and clean up.
const HELPERS: usize = 16;

/// Objects of an S3 store: put, read, listed, deleted, in parts and in ranges
///
/// Works in a bucket of its own, which it deletes, or below a prefix of its own in --bucket.
/// Several endpoints of one store are used together; credentials are those of the URL, else
/// CAIRN_KEY and CAIRN_SECRET.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn bench s3 http://127.0.0.1:9000 --ops put,get,head --sizes 4k,1m
  cairn bench s3 http://10.0.0.1:9000 --ops mixed --mix get=70,put=25,delete=5 --sizes 4k*9+1m*1
  cairn bench s3 http://10.0.0.1:9000 --ops multipart,ranged --object 10g --parts 64m -c 1,8,32
  cairn bench s3 http://g1:9000 http://g2:9000 http://g3:9000 --scale --ops head
  cairn bench s3 http://10.0.0.1:9000 --compare minio=http://KEY:SECRET@10.0.0.2:9000")]
pub struct S3Args {
    /// URLs of the endpoints of one store, with credentials if needed: http://KEY:SECRET@HOST:9000
    #[arg(required = true)]
    endpoints: Vec<String>,
    /// The name of the endpoints in results
    #[arg(long, value_name = "NAME", default_value = "target")]
    name: String,
    /// A further store to measure in turns, with its endpoints; may be given several times
    #[arg(long, value_name = "NAME=URL[,URL...]")]
    compare: Vec<String>,
    /// The access key
    #[arg(long, env = "CAIRN_KEY", hide_env_values = true)]
    key: Option<String>,
    /// The secret of the access key; better in the environment
    #[arg(long, env = "CAIRN_SECRET", hide_env_values = true)]
    secret: Option<String>,
    /// The region that requests are signed for
    #[arg(long, default_value = "us-east-1", value_parser = NonEmptyStringValueParser::new())]
    region: String,
    /// Use this bucket instead of a new one
    #[arg(long)]
    bucket: Option<String>,
    /// Operations to measure
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum)]
    #[arg(default_value = "put,get,head,list,delete")]
    ops: Vec<Kind>,
    /// Numbers of connections at the same time, to all endpoints together
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', default_value = "1,8,32")]
    #[arg(value_parser = values::count)]
    concurrency: Vec<usize>,
    /// Sizes of objects, each a load: 4k, 1k..1m (uniform), 4k*9+1m*1 (weights)
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "4k,1m")]
    sizes: Vec<String>,
    /// Number of objects that are made for reading, listing and deleting
    #[arg(long, value_name = "N", default_value = "200", value_parser = values::count)]
    objects: usize,
    /// The operations of `mixed` with their weights
    #[arg(long, value_name = "OP=WEIGHT,...", default_value = "get=70,put=20,head=5,delete=5")]
    mix: String,
    /// Bytes of the object of `multipart` and `ranged`
    #[arg(long, value_name = "SIZE", default_value = "256m", value_parser = values::size)]
    object: u64,
    /// Bytes of the parts and ranges of that object
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "8m,64m")]
    #[arg(value_parser = values::size)]
    parts: Vec<u64>,
    /// Measure one endpoint, two, and so on up to all, with --concurrency for each of them
    #[arg(long)]
    scale: bool,
    #[command(flatten)]
    time: Time,
    #[command(flatten)]
    client: Client,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, PartialEq, Debug, clap::ValueEnum)]
enum Kind {
    Put,
    Get,
    Head,
    List,
    Delete,
    Mixed,
    Multipart,
    Ranged,
}

/// A store that is compared.
struct Contender {
    name: String,
    stores: Vec<Store>,
    has_own_bucket: bool,
}

/// The kind of a load.
#[derive(Clone)]
enum Load {
    Single(Kind, String, Distribution),
    Parts(Kind, u64),
}

/// Everything that loads need.
struct Bench<'a> {
    args: &'a S3Args,
    connector: TlsConnector,
    noise: Bytes,
    prefix: String,
    mix: Vec<(Op, f64)>,
}

impl S3Args {
    fn contenders(&self, bucket: &str) -> Result<Vec<Contender>> {
        let mut lists = vec![(self.name.clone(), self.endpoints.clone())];
        for text in &self.compare {
            let (name, list) = named(text)?;
            lists.push((name, list.split(',').map(str::to_owned).collect()));
        }
        let default = self.key.clone().zip(self.secret.clone());
        let of = |(name, urls): (String, Vec<String>)| {
            let stores = urls
                .iter()
                .map(|url| Store::new(Target::parse(url)?, bucket, &self.region, default.clone()));
            let has_own_bucket = self.bucket.is_none();
            Ok(Contender { name, stores: stores.collect::<Result<_>>()?, has_own_bucket })
        };
        lists.into_iter().map(of).collect()
    }

    fn loads(&self) -> Result<Vec<Load>> {
        let mut sizes = Vec::new();
        for text in &self.sizes {
            let size = Distribution::parse(text, values::size)
                .map_err(|why| Error::usage(format!("--sizes: {why}")))?;
            if size.max() > BODY_MAX {
                return Err(Error::usage("--sizes: at most 1g; larger ones with --ops multipart"));
            }
            sizes.push((text.clone(), size));
        }
        for part in &self.parts {
            if *part == 0 || *part > BODY_MAX || self.object.div_ceil(*part) > PARTS_MAX {
                return Err(Error::usage(
                    "--parts: from 1 byte to 1g, and at most 10000 of them in --object",
                ));
            }
        }
        let of = |kind: &Kind| -> Vec<Load> {
            match kind {
                Kind::Multipart | Kind::Ranged => {
                    self.parts.iter().map(|part| Load::Parts(*kind, *part)).collect()
                }
                _ => sizes
                    .iter()
                    .map(|(text, size)| Load::Single(*kind, text.clone(), size.clone()))
                    .collect(),
            }
        };
        Ok(self.ops.iter().flat_map(of).collect())
    }
}

pub fn run(args: &S3Args) -> Result<()> {
    let prepared = PreparedBench::new(args)?;
    let mut session = Session::begin("s3", prepared.shown(), &args.output)?;
    prepared.begin()?;
    let closed = prepared.measure(&mut session);
    session.end()?;
    closed
}

/// Everything that is known before any request.
pub struct PreparedBench<'a> {
    bench: Bench<'a>,
    loads: Vec<Load>,
    contenders: Vec<Contender>,
}

impl<'a> PreparedBench<'a> {
    pub fn new(args: &'a S3Args) -> Result<PreparedBench<'a>> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let own = format!("cairn-bench-{}-{}", std::process::id(), since.as_secs());
        let bucket = args.bucket.clone().unwrap_or_else(|| own.clone());
        let (loads, contenders) = (args.loads()?, args.contenders(&bucket)?);
        let most = loads.iter().map(|load| match load {
            Load::Single(_, _, size) => size.max(),
            Load::Parts(_, part) => *part,
        });
        let length = noise_bytes(most.max().unwrap_or(0));
        let bench = Bench {
            args,
            connector: args.client.connector()?,
            noise: Bytes::from(noise(length as usize)),
            prefix: if args.bucket.is_some() { format!("{own}/") } else { String::new() },
            mix: parse_mix(&args.mix)?,
        };
        Ok(PreparedBench { bench, loads, contenders })
    }

    fn shown(&self) -> Vec<NamedTarget> {
        let shown = self.contenders.iter().map(|contender| {
            let urls = contender.stores.iter().map(|store| store.target.origin());
            NamedTarget { name: contender.name.clone(), target: urls.collect::<Vec<_>>().join(",") }
        });
        shown.collect()
    }

    /// Makes buckets, and the objects that are read in parts.
    pub fn begin(&self) -> Result<()> {
        let mut opened = Vec::new();
        for contender in &self.contenders {
            let begun = self.bench.open(contender).and_then(|()| {
                opened.push(contender);
                self.make_objects(contender)
            });
            if begun.is_err() {
                let mut closed = opened.into_iter().map(|contender| self.bench.close(contender));
                return closed.find(Result::is_err).unwrap_or(begun);
            }
        }
        Ok(())
    }

    fn make_objects(&self, contender: &Contender) -> Result<()> {
        let part = self.loads.iter().find_map(|load| match load {
            Load::Parts(Kind::Ranged, part) => Some(*part),
            _ => None,
        });
        let Some(part) = part else { return Ok(()) };
        let made = self.bench.upload(&contender.stores, &folder(Kind::Ranged), part, HELPERS)?;
        match made.broken {
            Some(why) => Err(Error::failed(format!("the object to read: {why}"))),
            None => Ok(()),
        }
    }

    /// Runs all loads. Returns whether everything that was made could be removed.
    pub fn measure(&self, session: &mut Session) -> Result<()> {
        let (bench, contenders) = (&self.bench, &self.contenders);
        session.run(bench.cases(contenders, &self.loads), bench.args.time.rounds);
        let closed: Vec<_> = contenders.iter().map(|contender| bench.close(contender)).collect();
        closed.into_iter().collect()
    }
}

impl Bench<'_> {
    fn hand<'b>(&'b self, store: &'b Store) -> Hand<'b> {
        Hand { store, connector: &self.connector, timeout: self.args.client.timeout }
    }

    /// Makes the bucket, or checks that it can be used; and sends one request to each endpoint.
    fn open(&self, contender: &Contender) -> Result<()> {
        if contender.has_own_bucket {
            self.hand(&contender.stores[0]).create_bucket()?;
        }
        let ask = |store| self.hand(store).list(&self.prefix).map(drop);
        contender.stores.iter().try_for_each(ask)
    }

    /// Removes everything that is there.
    fn close(&self, contender: &Contender) -> Result<()> {
        self.remove(contender, &self.prefix)?;
        if contender.has_own_bucket {
            self.hand(&contender.stores[0]).delete_bucket()
        } else {
            Ok(())
        }
    }

    fn remove(&self, contender: &Contender, prefix: &str) -> Result<()> {
        let store = &contender.stores[0];
        loop {
            let keys = self.hand(store).list(prefix)?;
            if keys.is_empty() {
                return Ok(());
            }
            let work = Arc::new(Removal { store: store.clone(), keys });
            let endpoints = vec![store.target.clone()];
            load::run_always(&Plan { endpoints, ..self.plan(work) })?;
        }
    }

    /// Makes the plan of a load that runs until its work is done, on one endpoint.
    fn plan(&self, work: Arc<dyn load::Work>) -> Plan {
        Plan {
            endpoints: Vec::new(),
            connector: self.connector.clone(),
            work,
            connections: HELPERS,
            keep_alive: true,
            pace: Pace::Closed { warm_up: Duration::ZERO, duration: None },
            timeout: self.args.client.timeout,
            threads: self.args.client.threads(),
            server: self.args.client.pid.clone(),
        }
    }

    fn cases<'b>(&'b self, contenders: &'b [Contender], loads: &[Load]) -> Vec<Case<'b>> {
        let mut cases = Vec::new();
        for load in loads {
            for &connections in &self.args.concurrency {
                for contender in contenders {
                    let all = contender.stores.len();
                    for endpoints in if self.args.scale { 1..=all } else { all..=all } {
                        let key = self.key(contender, load, connections, endpoints);
                        let load = load.clone();
                        let connections =
                            if self.args.scale { connections * endpoints } else { connections };
                        let run = move || {
                            let stores = &contender.stores[..endpoints];
                            self.measure(contender, stores, &load, connections)
                        };
                        cases.push(Case { key, run: Box::new(run) });
                    }
                }
            }
        }
        cases
    }

    fn key(&self, contender: &Contender, load: &Load, connections: usize, endpoints: usize) -> Key {
        let objects = self.args.objects;
        let what = match load {
            Load::Single(Kind::Put, size, _) => format!("PUT {size}"),
            Load::Single(Kind::Get, size, _) => format!("GET {size}"),
            Load::Single(Kind::Head, size, _) => format!("HEAD {size}"),
            Load::Single(Kind::List, ..) => format!("LIST {objects} objects"),
            Load::Single(Kind::Delete, size, _) => format!("DELETE {size}"),
            Load::Single(_, size, _) => format!("mixed ({}), {size}", self.args.mix),
            Load::Parts(kind, part) => {
                let name = if *kind == Kind::Multipart { "multipart PUT" } else { "ranged GET" };
                let (object, part) = (human_size(self.args.object), human_size(*part));
                format!("{name} of {object}, {part} each")
            }
        };
        let (what, name, value) = if self.args.scale {
            (format!("{what}, c={connections} each"), "endpoints", endpoints)
        } else {
            (what, "concurrency", connections)
        };
        let axis = Axis { name: name.to_owned(), value: value as f64 };
        Key { target: contender.name.clone(), what, axis }
    }

    fn work(&self, stores: &[Store], order: Order, folder: &str, sizes: &Distribution) -> S3Work {
        S3Work {
            stores: stores.to_vec(),
            order,
            prefix: format!("{}{folder}/", self.prefix),
            sizes: sizes.clone(),
            objects: self.args.objects as u64,
            noise: self.noise.clone(),
            etags: Mutex::new(BTreeMap::new()),
        }
    }

    fn measure(
        &self,
        contender: &Contender,
        stores: &[Store],
        load: &Load,
        connections: usize,
    ) -> Result<Sample> {
        match load {
            Load::Single(kind, text, sizes) => {
                self.single(contender, stores, *kind, text, sizes, connections)
            }
            Load::Parts(kind, part) => self.in_parts(contender, stores, *kind, *part, connections),
        }
    }

    fn single(
        &self,
        contender: &Contender,
        stores: &[Store],
        kind: Kind,
        text: &str,
        sizes: &Distribution,
        connections: usize,
    ) -> Result<Sample> {
        let folder = format!("{kind:?}-{}", text.replace(['*', '+', '.'], "-")).to_lowercase();
        let count = self.args.objects as u64;
        if kind != Kind::Put {
            let filling = Order::Only(Op::Put, Some(count));
            let work = Arc::new(self.work(stores, filling, &folder, sizes));
            let prefix = work.prefix.clone();
            // Objects that are read stay until the end.
            if kind == Kind::Delete || self.hand(&stores[0]).list(&prefix)?.is_empty() {
                load::run_always(&Plan { endpoints: targets(stores), ..self.plan(work) })
                    .map_err(|error| Error::failed(format!("objects to read: {error}")))?;
            }
        }
        let order = match kind {
            Kind::Put => Order::Only(Op::Put, None),
            Kind::Get => Order::Only(Op::Get, None),
            Kind::Head => Order::Only(Op::Head, None),
            Kind::List => Order::Only(Op::List, None),
            Kind::Delete => Order::Only(Op::Delete, Some(count)),
            _ => Order::Mixed(self.mix.clone()),
        };
        let Time { duration, warm_up, .. } = self.args.time;
        let pace = match kind {
            Kind::Delete => Pace::Closed { warm_up: Duration::ZERO, duration: None },
            _ => Pace::Closed { warm_up, duration: Some(duration) },
        };
        let work = Arc::new(self.work(stores, order, &folder, sizes));
        let prefix = work.prefix.clone();
        let plan = Plan { endpoints: targets(stores), connections, pace, ..self.plan(work) };
        let sample = load::run(&plan)?;
        if kind == Kind::Put && sample.broken.is_none() {
            self.remove(contender, &prefix)?;
        }
        Ok(sample)
    }

    /// Measures one object, in parts or in ranges.
    fn in_parts(
        &self,
        contender: &Contender,
        stores: &[Store],
        kind: Kind,
        part: u64,
        connections: usize,
    ) -> Result<Sample> {
        let folder = folder(kind);
        match kind {
            Kind::Multipart => {
                let sample = self.upload(stores, &folder, part, connections)?;
                self.remove(contender, &format!("{}{folder}/", self.prefix))?;
                Ok(sample)
            }
            _ => load::run(&self.parts(stores, Order::Ranges { part }, &folder, connections).1),
        }
    }

    /// Measures work on parts of one object.
    fn parts(
        &self,
        stores: &[Store],
        order: Order,
        folder: &str,
        connections: usize,
    ) -> (Arc<S3Work>, Plan) {
        let mut work = self.work(stores, order, folder, &Distribution::Uniform(0, 0));
        work.objects = self.args.object;
        let work = Arc::new(work);
        let plan = self.plan(Arc::clone(&work) as Arc<dyn load::Work>);
        (work, Plan { endpoints: targets(stores), connections, ..plan })
    }

    /// Makes the object.
    fn upload(
        &self,
        stores: &[Store],
        folder: &str,
        part: u64,
        connections: usize,
    ) -> Result<Sample> {
        let hand = self.hand(&stores[0]);
        let key = format!("{}{folder}/{:08}", self.prefix, 0);
        let begun = Instant::now();
        let id = hand.begin_upload(&key)?;
        let order = Order::Upload { upload: id.clone(), part };
        let (work, plan) = self.parts(stores, order, folder, connections);
        let mut sample = load::run(&plan)?;
        let etags: Vec<String> = work.etags.lock().values().cloned().collect();
        if etags.len() as u64 != self.args.object.div_ceil(part) {
            let aborted = hand.abort_upload(&key, &id);
            let left = aborted.err().map(|error| format!("; {error}")).unwrap_or_default();
            sample.broken.get_or_insert(format!("parts of an upload failed{left}"));
            return Ok(sample);
        }
        hand.complete_upload(&key, &id, &etags)?;
        // The time includes everything until the object is there.
        sample.seconds = begun.elapsed().as_secs_f64();
        Ok(sample)
    }
}

/// Returns the folder of the objects of a load in parts.
fn folder(kind: Kind) -> String {
    format!("{kind:?}").to_lowercase()
}
