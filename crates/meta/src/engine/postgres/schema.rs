//! Makes, checks and removes the tables.

use cairn_base::{Error, Result};
use tokio_postgres::types::Type;

use super::link::{DatabaseLink, Fault, Params};
use super::sql::FORMAT;
use super::target::Target;

/// Makes the tables if `create` is set and they do not exist, and refuses tables of another format.
pub fn prepare(target: &Target, link: &DatabaseLink, create: bool) -> Result<()> {
    let (sql, shown) = (&target.sql, target.shown());
    let schema = &sql.schema;
    let exists = "SELECT to_regclass($1) IS NOT NULL, to_regnamespace($2) IS NOT NULL";
    let names = [format!("\"{schema}\".fence"), format!("\"{schema}\"")];
    let params: &Params<'_> = &[(&names[0], Type::TEXT), (&names[1], Type::TEXT)];
    let found = link.query(exists, params).map_err(|fault| fault.at(shown))?;
    let exists = |at| found.first().is_some_and(|row| row.try_get(at).unwrap_or(false));
    if !exists(0) {
        if !create {
            let text =
                format!("{shown}: no tables of Cairn in schema {schema:?}: name the right one");
            return Err(Error::NotFound(text));
        }
        link.execute(&sql.create(exists(1))).map_err(|fault| not_made(target, fault))?;
        tracing::info!(database = shown, schema, "tables made");
    }
    let read = format!("SELECT format FROM \"{schema}\".fence");
    let rows = link.query(&read, &[]).map_err(|fault| fault.at(shown))?;
    let format: Option<i64> = rows.first().and_then(|row| row.try_get(0).ok());
    match format {
        Some(FORMAT) => Ok(()),
        Some(newer) if newer > FORMAT => Err(Error::Invalid(format!(
            "{shown}: schema {schema:?} has format {newer}, this version of Cairn knows {FORMAT}: \
             use a newer one"
        ))),
        other => {
            let what = format!("{shown}, schema {schema:?}: format");
            Err(Error::corrupt(what, format!("{other:?}"), FORMAT))
        }
    }
}

/// Removes the tables and everything else in their schema.
pub fn remove(target: &Target, link: &DatabaseLink) -> Result<()> {
    let sql = format!("DROP SCHEMA IF EXISTS \"{}\" CASCADE", target.sql.schema);
    link.execute(&sql).map_err(|fault| fault.at(target.shown()))
}

fn not_made(target: &Target, fault: Fault) -> Error {
    match fault {
        Fault::Refused { text, .. } => Error::Invalid(format!(
            "{}: making the tables in schema {:?}: {text}: let the user create schemas in this \
             database, or make the schema and let the user own it",
            target.shown(),
            target.sql.schema
        )),
        lost @ (Fault::Lost { .. } | Fault::Standby { .. }) => lost.at(target.shown()),
    }
}
