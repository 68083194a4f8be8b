//! Errors of the database, as they are shown.

/// Formats an error in one line.
pub fn text(error: &tokio_postgres::Error) -> String {
    let text = match (error.as_db_error(), std::error::Error::source(error)) {
        (Some(answer), _) => {
            format!("{}: {} ({})", answer.severity(), answer.message(), answer.code().code())
        }
        (None, Some(cause)) => format!("{error}: {cause}"),
        (None, None) => error.to_string(),
    };
    text.replace('\n', " ")
}
