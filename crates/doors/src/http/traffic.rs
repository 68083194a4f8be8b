//! `/admin/traffic`: the requests of the last seconds, and those in flight.

use std::time::Duration;

use cairn_auth::Caller;
use cairn_base::{Result, UserId, inflight};
use cairn_fs::Fs;
use cairn_fs::ops::credentials::UserName;
use http::{Response, StatusCode};
use serde::Serialize;

use super::{Body, json_of};
use crate::traffic::{RequestSummary, Tally, Traffic};

/// Path of these requests, below that of administration.
pub const PATH: &str = "traffic";
/// Most names of each kind, and most requests in flight, in a reply.
const TOLD: usize = 50;

#[derive(Serialize)]
struct ShownTraffic {
    /// Length of the period; 0 if none is over yet.
    seconds: f64,
    doors: Vec<ShownTally>,
    users: Vec<ShownTally>,
    buckets: Vec<ShownTally>,
    objects: Vec<ShownTally>,
    slowest: Vec<ShownRequest>,
    in_flight: Vec<ShownFlight>,
    /// Number of all requests that wait in this process.
    waiting: usize,
}

#[derive(Serialize)]
struct ShownTally {
    /// Empty for requests without credentials.
    name: String,
    requests: u64,
    doubtful: u64,
    failed: u64,
    received_bytes: u64,
    sent_bytes: u64,
    /// Total time of all requests, microseconds.
    us: u64,
}

#[derive(Serialize)]
struct ShownRequest {
    door: &'static str,
    operation: String,
    user: String,
    bucket: Option<String>,
    key: Option<String>,
    status: Option<u16>,
    us: u64,
    trace: Option<String>,
}

#[derive(Serialize)]
struct ShownFlight {
    door: &'static str,
    operation: String,
    object: String,
    user: String,
    client: String,
    stage: Option<&'static str>,
    age_ms: u64,
    waits_for: Vec<String>,
}

pub async fn reply(fs: &Fs, traffic: &Traffic) -> Result<Response<Body>> {
    let seen = traffic.ask(TOLD);
    let mut users = Vec::new();
    for (user, tally) in &seen.users {
        users.push(shown(name(fs, *user).await?, tally));
    }
    let mut slowest = Vec::new();
    for passed in seen.slowest {
        let user = name(fs, passed.user).await?;
        slowest.push(slow(passed, user));
    }
    let mut waiting = inflight::seen();
    // The request that asks is no traffic.
    waiting.retain(|flight| flight.about.object != "/admin/traffic");
    let mut in_flight = Vec::new();
    for flight in waiting.iter().filter(|flight| !flight.about.is_patient).take(TOLD) {
        let user = name(fs, flight.about.user).await?;
        in_flight.push(ShownFlight {
            door: flight.about.door,
            operation: flight.about.operation.clone().into_owned(),
            object: flight.about.object.clone(),
            user,
            client: flight.about.client.clone(),
            stage: flight.stage.map(|stage| stage.name()),
            age_ms: u64::try_from(flight.age.as_millis()).unwrap_or(u64::MAX),
            waits_for: flight.waits.iter().map(|(what, _)| what.clone()).collect(),
        });
    }
    let objects = seen.objects.iter();
    let objects = objects.map(|((bucket, key), tally)| shown(format!("{bucket}/{key}"), tally));
    let told = ShownTraffic {
        seconds: seen.period.as_secs_f64(),
        doors: seen.doors.iter().map(|(name, tally)| shown((*name).to_owned(), tally)).collect(),
        users,
        buckets: seen.buckets.iter().map(|(name, tally)| shown(name.clone(), tally)).collect(),
        objects: objects.collect(),
        slowest,
        in_flight,
        waiting: waiting.len(),
    };
    Ok(json_of(StatusCode::OK, &told))
}

/// Returns the name of a user, or the number if the user has no name any more.
async fn name(fs: &Fs, user: Option<UserId>) -> Result<String> {
    let Some(user) = user else { return Ok(String::new()) };
    let found = fs.read(&Caller::system(), UserName { user }).await?;
    Ok(found.unwrap_or_else(|| user.to_string()))
}

fn shown(name: String, tally: &Tally) -> ShownTally {
    let Tally { requests, doubtful, failed, received_bytes, sent_bytes, took } = *tally;
    let us = micros(took);
    ShownTally { name, requests, doubtful, failed, received_bytes, sent_bytes, us }
}

fn slow(passed: RequestSummary, user: String) -> ShownRequest {
    let us = micros(passed.took);
    let RequestSummary { door, operation, bucket, key, status, trace, .. } = passed;
    ShownRequest { door, operation, user, bucket, key, status, us, trace }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
