//! Certificates that an authority signs by ACME (RFC 8555), ordered and renewed while doors are
//! open.
//!
//! ```text
//!   Acme ── order ──► authority ── GET /.well-known/acme-challenge/TOKEN ──► door `redirect`
//!     └── certificate.pem ──► Tls of the doors
//! ```

mod args;
mod challenges;
mod place;
mod transport;

pub use args::AcmeArgs;
pub use challenges::Challenges;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use cairn_doors::tls::Tls;
use cairn_tls::Trust;
use instant_acme::{
    Account, AuthorizationStatus, ChallengeType, Error, Identifier, NewAccount, NewOrder, Order,
    OrderStatus, RetryPolicy,
};

use crate::failure::{Failure, Result};
use place::{CertificateOrder, Place};
use transport::Transport;

/// Pause before a failed order is tried again: authorities limit the failures per hour.
const FIRST_RETRY: Duration = Duration::from_secs(2 * 60);
const LAST_RETRY: Duration = Duration::from_secs(6 * 60 * 60);
/// Longest pause between two checks of the certificate's remaining time: clocks can be set.
const LOOK: Duration = Duration::from_secs(60 * 60);
/// Time that an authority may take to look at the proofs, and to sign.
const PATIENCE: RetryPolicy = RetryPolicy::new().timeout(Duration::from_secs(120));

/// Keeps a certificate valid.
pub struct Acme {
    place: Place,
    names: Vec<String>,
    /// URL of the authority.
    directory: String,
    mail: Option<String>,
    trust: Trust,
    challenges: Arc<Challenges>,
}

impl Acme {
    /// Orders a certificate whenever it is due; never ends.
    pub async fn run(self, tls: Arc<Tls>) {
        let ordered =
            CertificateOrder { directory: self.directory.clone(), names: self.names.clone() };
        let mut retry = FIRST_RETRY;
        loop {
            match self.look(&ordered, &tls).await {
                Ok(due_in) => {
                    retry = FIRST_RETRY;
                    tokio::time::sleep(due_in.min(LOOK)).await;
                }
                Err(error) => {
                    tracing::error!(
                        %error, names = %self.names.join(" "), retry_s = retry.as_secs(),
                        "no certificate from the authority"
                    );
                    tokio::time::sleep(retry).await;
                    retry = (retry * 2).min(LAST_RETRY);
                }
            }
        }
    }

    /// Orders a certificate if it is due, and returns the time until the next order.
    async fn look(&self, ordered: &CertificateOrder, tls: &Tls) -> Result<Duration> {
        let left = |due: SystemTime| due.duration_since(SystemTime::now()).ok();
        if let Some(left) = left(self.place.due(ordered)?) {
            return Ok(left);
        }
        let (key, chain) = self.order().await?;
        self.place.keep_certificate(&key, &chain, ordered)?;
        tls.reload()?;
        tracing::info!(names = %self.names.join(" "), "certificate from the authority");
        Ok(left(self.place.due(ordered)?).unwrap_or_default().max(FIRST_RETRY))
    }

    /// Orders a certificate. Returns a private key and a certificate chain, both PEM.
    async fn order(&self) -> Result<(String, String)> {
        let account = self.account().await?;
        let names: Vec<_> = self.names.iter().cloned().map(Identifier::Dns).collect();
        let mut order = account.new_order(&NewOrder::new(&names)).await.map_err(said)?;
        let shown = self.challenges.show(proofs(&mut order).await.map_err(said)?);
        ready(&mut order).await.map_err(said)?;
        match order.poll_ready(&PATIENCE).await {
            Ok(OrderStatus::Ready) => {}
            Ok(status) => return Err(refused(&mut order, &format!("{status:?}")).await),
            Err(Error::Api(problem)) => {
                return Err(refused(&mut order, &problem.to_string()).await);
            }
            Err(error) => return Err(said(error)),
        }
        drop(shown);
        let key = order.finalize().await.map_err(said)?;
        let chain = order.poll_certificate(&PATIENCE).await.map_err(said)?;
        Ok((key, chain))
    }

    async fn account(&self) -> Result<Account> {
        let builder = Account::builder_with_http(Box::new(Transport(self.trust.clone())));
        if let Some(credentials) = self.place.account(&self.directory)? {
            return builder.from_credentials(credentials).await.map_err(said);
        }
        let contact = self.mail.as_ref().map(|mail| format!("mailto:{mail}"));
        let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
        let new = NewAccount {
            contact: &contact,
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let made = builder.create(&new, self.directory.clone(), None).await;
        let (account, credentials) = made.map_err(said)?;
        self.place.keep_account(&self.directory, credentials)?;
        Ok(account)
    }
}

/// Returns the answers that prove the names of an order, by their tokens.
async fn proofs(order: &mut Order) -> Result<HashMap<String, String>, Error> {
    let mut answers = HashMap::new();
    let mut authorizations = order.authorizations();
    while let Some(found) = authorizations.next().await {
        let mut found = found?;
        if found.status != AuthorizationStatus::Pending {
            continue;
        }
        let challenge = found.challenge(ChallengeType::Http01);
        let challenge = challenge.ok_or(Error::Unsupported("proofs by HTTP"))?;
        let answer = challenge.key_authorization().as_str().to_owned();
        answers.insert(challenge.token.clone(), answer);
    }
    Ok(answers)
}

/// Asks the authority to look at the proofs.
async fn ready(order: &mut Order) -> Result<(), Error> {
    let mut authorizations = order.authorizations();
    while let Some(found) = authorizations.next().await {
        let mut found = found?;
        if found.status == AuthorizationStatus::Pending
            && let Some(mut challenge) = found.challenge(ChallengeType::Http01)
        {
            challenge.set_ready().await?;
        }
    }
    Ok(())
}

/// Returns the proof that the authority did not accept.
async fn refused(order: &mut Order, why: &str) -> Failure {
    let mut authorizations = order.authorizations();
    while let Some(found) = authorizations.next().await {
        let Ok(mut found) = found else { continue };
        let Ok(state) = found.refresh().await else { continue };
        let problem = state.challenges.iter().find_map(|challenge| challenge.error.as_ref());
        if let Some(problem) = problem {
            let name = state.identifier();
            return Failure::new(format!(
                "the authority did not accept the proof for {name}: {problem}: port 80 of that \
                 name must lead to the door --redirect"
            ));
        }
    }
    Failure::new(format!("the authority refused the order: {why}"))
}

fn said(error: Error) -> Failure {
    Failure::new(format!("the authority: {error}"))
}
