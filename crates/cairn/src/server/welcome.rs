//! First credentials: preset by the environment, or made and shown once.

use std::env;
use std::path::Path;

use cairn_auth::{NewCredential, SecretKey, check_access_key_id, check_secret_key};
use cairn_base::Secret;

use super::doors::{Sockets, console, http, s3};
use crate::failure::{Failure, Result};
use crate::output;
use crate::secret_file;

const KEY: &str = "CAIRN_ROOT_KEY";
const SECRET: &str = "CAIRN_ROOT_SECRET";

/// An access key of root that the operator chose.
pub type Preset = Option<(String, SecretKey)>;

/// Reads the preset, both of it or none.
pub fn preset() -> Result<Preset> {
    let read = |name: &str| match env::var(name) {
        Ok(value) => Ok(Some(value)),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(env::VarError::NotUnicode(_)) => {
            Err(Failure::usage(format!("{name}: its value is not UTF-8")))
        }
    };
    match (read(KEY)?, read(SECRET)?.map(Secret::new)) {
        (None, None) => Ok(None),
        (Some(id), Some(secret)) => checked((id, KEY), (secret, SECRET)),
        (Some(_), None) => Err(Failure::usage(format!("{KEY} is set, {SECRET} is not: set both"))),
        (None, Some(_)) => Err(Failure::usage(format!("{SECRET} is set, {KEY} is not: set both"))),
    }
}

/// Returns the preset, or the options that were given in its place.
pub fn chosen(id: Option<&str>, secret: Option<&Path>) -> Result<Preset> {
    let (Some(id), Some(path)) = (id, secret) else { return preset() };
    let secret = secret_file::read(path)?;
    checked((id.to_owned(), "--root-key"), (secret, "--root-secret-file"))
}

fn checked(id: (String, &str), secret: (Secret<String>, &str)) -> Result<Preset> {
    let usage = |error: cairn_base::Error| Failure::usage(error.to_string());
    check_access_key_id(&id.0).map_err(|error| usage(error).of(id.1))?;
    check_secret_key(&secret.0).map_err(|error| usage(error).of(secret.1))?;
    Ok(Some((id.0, secret.0)))
}

/// Shows new credentials on stdout, never in the log.
pub fn show(credential: &NewCredential, sockets: &Sockets) -> Result<()> {
    let (id, secret) = (&credential.id, credential.secret.expose());
    // If it listens on all addresses, this machine's is one of them.
    let local =
        |url: &str| url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:");
    let (s3, http) = (local(sockets.shown(&s3::DOOR)), local(sockets.shown(&http::DOOR)));
    let console = match local(sockets.shown(&console::DOOR)) {
        url if url.is_empty() => String::new(),
        url => format!("\n  {url}  the console, in a browser\n"),
    };
    let text = Secret::new(format!(
        "
A new store. Its first credentials, shown only this once:

  access key  {id}
  secret key  {secret}

Try:
{console}
  export CAIRN_SERVER={http} CAIRN_KEY={id} CAIRN_SECRET={secret}
  cairn bucket create photos
  cairn put cat.jpg photos/cat.jpg
  curl -u $CAIRN_KEY:$CAIRN_SECRET {http}/storage/photos/cat.jpg -o cat.jpg

  export AWS_ACCESS_KEY_ID={id} AWS_SECRET_ACCESS_KEY={secret} AWS_REGION=us-east-1
  aws --endpoint-url {s3} s3 ls
"
    ));
    output::line(text.expose())
}

/// Prints how to replace the first credentials if they are lost.
pub fn remind(directory: &Path) {
    let shown = directory.display();
    tracing::info!(
        "credentials were shown at the first start; to add others: cairn key create USER, or with \
         the server stopped: cairn key create root --dir {shown}"
    );
}
