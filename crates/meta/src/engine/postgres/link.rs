//! One connection, driven by the thread that uses it.

use std::time::Duration;

use cairn_base::{Error, Result};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_postgres::error::Severity;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use super::errors::text;
use super::tls::Tls;
use super::url::Url;

/// A request that takes longer than this will not be answered.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

pub type Params<'a> = [(&'a (dyn ToSql + Sync), Type)];

/// The fault of a request.
#[derive(Debug)]
pub enum Fault {
    /// The server answered with an error; its transaction is over, the connection works.
    Refused { code: String, text: String },
    /// No answer arrived, or the answer ended the connection. Another attempt may succeed if
    /// `again`.
    Lost { again: bool, text: String },
    /// A standby answered, or a server that is about to become one. A pooler may lead there for a
    /// while when the database fails over.
    Standby { text: String },
}

/// Error code of a server that refuses changes as it is read-only.
const READ_ONLY: &str = "25006";

impl Fault {
    fn new(error: &tokio_postgres::Error) -> Fault {
        let text = text(error);
        let Some(answer) = error.as_db_error() else { return Fault::Lost { again: true, text } };
        let code = answer.code().code().to_owned();
        // A pooler reports in this way that it lost the server.
        let lost = code.starts_with("08") || answer.parsed_severity() != Some(Severity::Error);
        match lost {
            true => Fault::Lost { again: !is_permanent(&code), text },
            false if code == READ_ONLY => Fault::Standby { text },
            false => Fault::Refused { code, text },
        }
    }

    /// The fault of a server that reported itself to be a standby.
    pub fn standby() -> Fault {
        Fault::Standby { text: "it is a standby: name the primary, or promote it".into() }
    }

    /// Converts the fault into an error for a caller of the database named `shown`.
    pub fn at(self, shown: &str) -> Error {
        match self {
            Fault::Lost { text, .. } | Fault::Standby { text } => {
                Error::Unavailable(format!("{shown}: {text}"))
            }
            Fault::Refused { code, text } => {
                let what = format!("{shown}: {text}");
                match code.as_str() {
                    "53100" => Error::Full(what),
                    "XX001" | "XX002" => Error::corrupt(shown, text, "rows that can be read"),
                    _ => Error::Unavailable(what),
                }
            }
        }
    }
}

/// Checks the answer to a statement that returns no row if a standby executes it: a standby may
/// lack the latest acknowledged changes.
pub fn of_primary(rows: Vec<Row>) -> Result<Vec<Row>, Fault> {
    if rows.is_empty() { Err(Fault::standby()) } else { Ok(rows) }
}

/// Returns whether the error will persist: wrong password, no such database, no right to connect.
fn is_permanent(code: &str) -> bool {
    ["28", "3D", "42"].iter().any(|class| code.starts_with(class))
}

/// A connection, and the runtime that drives it while a caller waits for an answer.
pub struct DatabaseLink {
    client: Client,
    /// `None` only while it is being dropped.
    runtime: Option<Runtime>,
}

impl DatabaseLink {
    /// Opens a connection within `limit`.
    pub fn open(url: &Url, tls: &Tls, limit: Duration) -> Result<DatabaseLink, Fault> {
        let failed = |error: &dyn std::fmt::Display| Fault::Lost {
            again: true,
            text: format!("connecting: {error}"),
        };
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(1)
            .build()
            .map_err(|error| failed(&error))?;
        let connecting = url.config.connect(tls.clone());
        let connected = runtime.block_on(async { timeout(limit, connecting).await });
        let (client, connection) =
            connected.map_err(|error| failed(&error))?.map_err(|error| Fault::new(&error))?;
        runtime.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(error = text(&error), "connection to the database ended");
            }
        });
        Ok(DatabaseLink { client, runtime: Some(runtime) })
    }

    /// Sends one statement, which is a transaction of its own unless a transaction was begun.
    pub fn query(&self, sql: &str, params: &Params<'_>) -> Result<Vec<Row>, Fault> {
        self.query_within(ANSWER_TIMEOUT, sql, params)
    }

    /// Sends one statement like `query`; an answer that takes longer than `limit` counts as lost.
    pub fn query_within(
        &self,
        limit: Duration,
        sql: &str,
        params: &Params<'_>,
    ) -> Result<Vec<Row>, Fault> {
        self.wait(limit, self.client.query_typed(sql, params))
    }

    /// Sends statements that have no parameters and waits until all are done.
    pub fn execute(&self, sql: &str) -> Result<(), Fault> {
        self.wait(ANSWER_TIMEOUT, self.client.batch_execute(sql))
    }

    /// Sends `first` and `second` at once, in this order.
    pub fn pipeline(&self, first: &str, second: &str) -> Result<Vec<Row>, Fault> {
        self.wait(ANSWER_TIMEOUT, async {
            let first = self.client.batch_execute(first);
            let ((), rows) = tokio::try_join!(first, self.client.query_typed(second, &[]))?;
            Ok(rows)
        })
    }

    /// Sends a statement and does not wait for the answer.
    pub fn post(&self, sql: &str) {
        self.runtime().block_on(async {
            tokio::select! {
                biased;
                _ = self.client.batch_execute(sql) => {}
                () = tokio::task::yield_now() => {}
            }
        });
    }

    fn wait<T>(
        &self,
        limit: Duration,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Fault> {
        match self.runtime().block_on(async { timeout(limit, answer).await }) {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(Fault::new(&error)),
            Err(_) => {
                let text = format!("no answer within {} ms", limit.as_millis());
                Err(Fault::Lost { again: true, text })
            }
        }
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("it is there until dropped")
    }
}

impl Drop for DatabaseLink {
    fn drop(&mut self) {
        // This also works within another runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
