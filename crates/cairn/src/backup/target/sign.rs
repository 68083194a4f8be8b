//! Signatures of requests to S3, version 4.

use aws_lc_rs::{digest, hmac};
use cairn_base::Secret;

use super::super::seal::hex;

/// An access key of S3. No `Debug`: it has a secret in it.
pub struct Credentials {
    pub id: String,
    pub secret: Secret<String>,
    pub session_token: Option<Secret<String>>,
}

/// A request that is to be signed. Path and query are as they are sent, the query in order.
pub struct RequestToSign<'a> {
    pub method: &'a str,
    pub host: &'a str,
    pub path: &'a str,
    pub query: &'a str,
    pub body: &'a [u8],
}

/// The headers that sign a request at a time, `20260101T000000Z`.
pub fn headers(
    credentials: &Credentials,
    region: &str,
    asked: &RequestToSign<'_>,
    time: &str,
) -> Vec<(&'static str, Secret<String>)> {
    let sha256 = |bytes: &[u8]| hex(digest::digest(&digest::SHA256, bytes).as_ref());
    let day = time.get(..8).unwrap_or(time);
    let body = sha256(asked.body);
    let mut signed = vec![
        ("host", Secret::new(asked.host.to_owned())),
        ("x-amz-content-sha256", Secret::new(body.clone())),
        ("x-amz-date", Secret::new(time.to_owned())),
    ];
    if let Some(token) = &credentials.session_token {
        signed.push(("x-amz-security-token", token.clone()));
    }
    let names: Vec<&str> = signed.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let lines: String =
        signed.iter().map(|(name, value)| format!("{name}:{}\n", value.expose())).collect();
    let RequestToSign { method, path, query, .. } = asked;
    let canonical = Secret::new(format!("{method}\n{path}\n{query}\n{lines}\n{names}\n{body}"));
    let scope = format!("{day}/{region}/s3/aws4_request");
    let of_request = sha256(canonical.expose().as_bytes());
    let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{of_request}");
    let first = Secret::new(format!("AWS4{}", credentials.secret.expose()));
    let mut key = Secret::new(first.expose().as_bytes().to_vec());
    for part in [day, region, "s3", "aws4_request"] {
        key = Secret::new(mac(key.expose(), part));
    }
    let signature = hex(&mac(key.expose(), &text));
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential={}/{scope},SignedHeaders={names},Signature={signature}",
        credentials.id
    );
    signed.remove(0);
    signed.push(("authorization", Secret::new(authorization)));
    signed
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "GET Bucket (List Objects)" of the documentation of Amazon S3.
    #[test]
    fn it_is_that_of_the_example() {
        let credentials = Credentials {
            id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret: Secret::new("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned()),
            session_token: None,
        };
        let asked = RequestToSign {
            method: "GET",
            host: "examplebucket.s3.amazonaws.com",
            path: "/",
            query: "max-keys=2&prefix=J",
            body: b"",
        };
        let headers = headers(&credentials, "us-east-1", &asked, "20130524T000000Z");
        let (_, authorization) = headers.last().unwrap();
        let wanted = "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7";
        assert!(authorization.expose().ends_with(wanted), "{}", authorization.expose());
    }
}
