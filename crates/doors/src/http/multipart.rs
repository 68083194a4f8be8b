//! The files of a form (`multipart/form-data`, RFC 7578), one after another as they arrive. No file
//! is held in memory, and everything that is held has a limit.

use bytes::{Bytes, BytesMut};
use cairn_base::{Error, Result};
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use http_body_util::BodyExt;

use super::error::Failure;
use crate::upload::Upload;

/// Most characters of a boundary, according to RFC 2046.
const BOUNDARY: usize = 70;
/// Bytes of the headers of a part.
const HEADERS: usize = 8 << 10;

/// The parts of a form.
pub struct Form<'a> {
    source: Source<'a>,
    /// The text `\r\n--boundary`.
    delimiter: Vec<u8>,
    buffer: BytesMut,
    is_over: bool,
}

/// The source of the bytes.
pub enum Source<'a> {
    Upload(&'a mut Upload),
    #[cfg(test)]
    Pieces(std::vec::IntoIter<Bytes>),
}

/// A part: a file, or another field.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Part {
    /// The name of the file, without directories; `None` for another field.
    pub file_name: Option<String>,
    pub content_type: String,
}

fn malformed(what: &str) -> Failure {
    Error::Invalid(format!("form: {what}")).into()
}

impl Source<'_> {
    async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        match self {
            Source::Upload(upload) => loop {
                match upload.frame().await.transpose()?.map(|frame| frame.into_data()) {
                    None => return Ok(None),
                    Some(Ok(bytes)) => return Ok(Some(bytes)),
                    Some(Err(_)) => {}
                }
            },
            #[cfg(test)]
            Source::Pieces(pieces) => Ok(pieces.next()),
        }
    }
}

impl<'a> Form<'a> {
    /// Begins to read a form.
    ///
    /// # Errors
    /// `Invalid` if the body is not a form.
    pub fn new(headers: &HeaderMap, source: Source<'a>) -> Result<Form<'a>> {
        let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let boundary = kind.and_then(boundary).filter(|boundary| {
            let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'"';
            (1..=BOUNDARY).contains(&boundary.len()) && boundary.bytes().all(is_plain)
        });
        let bad = || Error::Invalid("send a form as multipart/form-data with a boundary".into());
        let delimiter = format!("\r\n--{}", boundary.ok_or_else(bad)?).into_bytes();
        // So that the first delimiter looks like the others.
        Ok(Form { source, delimiter, buffer: BytesMut::from(&b"\r\n"[..]), is_over: false })
    }

    async fn fill(&mut self) -> Result<(), Failure> {
        match self.source.next().await? {
            Some(bytes) => {
                self.buffer.extend_from_slice(&bytes);
                Ok(())
            }
            None => Err(malformed("it ends in the middle")),
        }
    }

    /// Returns the next part, once the bytes of the part before were taken.
    pub async fn part(&mut self) -> Result<Option<Part>, Failure> {
        if self.is_over {
            return Ok(None);
        }
        while self.buffer.len() < self.delimiter.len() + 2 {
            self.fill().await?;
        }
        if !self.buffer.starts_with(&self.delimiter) {
            return Err(malformed("a part does not begin with the boundary"));
        }
        let _ = self.buffer.split_to(self.delimiter.len());
        if self.buffer.starts_with(b"--") {
            self.is_over = true;
            return Ok(None);
        }
        if !self.buffer.starts_with(b"\r\n") {
            return Err(malformed("a boundary goes on"));
        }
        let end = loop {
            if let Some(at) = self.buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                break at;
            }
            if self.buffer.len() > HEADERS {
                return Err(malformed("the headers of a part are too long"));
            }
            self.fill().await?;
        };
        let headers = self.buffer.split_to(end + 4);
        let headers = std::str::from_utf8(&headers);
        let part = parse(headers.map_err(|_| malformed("headers that are not UTF-8"))?);
        // The line end before the next delimiter belongs to the delimiter.
        Ok(Some(part))
    }

    /// Returns further bytes of the part; `None` at its end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            let sure = sure(&self.buffer, &self.delimiter);
            if sure > 0 {
                return Ok(Some(self.buffer.split_to(sure).freeze()));
            }
            if self.buffer.len() >= self.delimiter.len() {
                return Ok(None);
            }
            self.fill().await?;
        }
    }
}

/// Returns the number of bytes that surely precede the delimiter. Zero with a long enough buffer
/// means that the delimiter begins there.
fn sure(buffer: &[u8], delimiter: &[u8]) -> usize {
    let mut from = 0;
    loop {
        let rest = buffer.get(from..).unwrap_or_default();
        let Some(at) = rest.iter().position(|byte| *byte == b'\r') else { return buffer.len() };
        let rest = rest.get(at..).unwrap_or_default();
        let compared = rest.len().min(delimiter.len());
        if rest.get(..compared) == delimiter.get(..compared) {
            return from + at;
        }
        from += at + 1;
    }
}

/// Returns the boundary of a content type.
fn boundary(kind: &str) -> Option<&str> {
    let mut parts = kind.split(';').map(str::trim);
    if !parts.next()?.eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let value = parts.find_map(|part| {
        let (name, value) = part.split_once('=')?;
        name.eq_ignore_ascii_case("boundary").then_some(value)
    })?;
    Some(value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value))
}

/// Returns a parameter of the value of a header, in quotes or not.
fn parameter(value: &str, wanted: &str) -> Option<String> {
    let (_, mut rest) = value.split_once(';')?;
    loop {
        let (names, after) = rest.split_once('=')?;
        let name = names.rsplit(';').next().unwrap_or_default().trim();
        let after = after.trim_start();
        let (text, next) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_at(end_of_quoted(quoted)),
            None => {
                let (token, next) = after.split_at(after.find(';').unwrap_or(after.len()));
                (token.trim_end(), next)
            }
        };
        if name.eq_ignore_ascii_case(wanted) {
            return Some(text.replace("\\\"", "\""));
        }
        rest = next;
    }
}

/// Returns the position of the quote that ends a text. Some clients escape other quotes by a
/// backslash.
fn end_of_quoted(text: &str) -> usize {
    let is_end = |at: &usize| !text.get(..*at).unwrap_or_default().ends_with('\\');
    text.match_indices('"').map(|(at, _)| at).find(is_end).unwrap_or(text.len())
}

fn parse(headers: &str) -> Part {
    let mut part = Part::default();
    for line in headers.split("\r\n") {
        let Some((name, value)) = line.split_once(':') else { continue };
        if name.eq_ignore_ascii_case("content-disposition") {
            part.file_name = parameter(value, "filename").map(|name| {
                // Browsers escape only these.
                let name = name.replace("%22", "\"").replace("%0D", "").replace("%0A", "");
                name.rsplit(['/', '\\']).next().unwrap_or_default().to_owned()
            });
        } else if name.eq_ignore_ascii_case("content-type") {
            part.content_type = value.trim().to_owned();
        }
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    type ReadParts = Vec<(Part, Vec<u8>)>;

    fn read(kind: &str, pieces: Vec<Bytes>) -> Result<ReadParts, Failure> {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::try_from(kind).unwrap())]);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut form = Form::new(&headers, Source::Pieces(pieces.into_iter()))?;
            let mut found = Vec::new();
            while let Some(part) = form.part().await? {
                let mut bytes = Vec::new();
                while let Some(chunk) = form.chunk().await? {
                    assert!(!chunk.is_empty());
                    bytes.extend_from_slice(&chunk);
                }
                found.push((part, bytes));
            }
            Ok(found)
        })
    }

    const KIND: &str = "multipart/form-data; boundary=xyz";

    fn form(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut body = Vec::new();
        for (name, bytes) in files {
            let head = format!(
                "--xyz\r\nContent-Disposition: form-data; name=\"f\"; filename=\"{name}\"\r\n\
                 Content-Type: text/plain\r\n\r\n"
            );
            body.extend_from_slice(head.as_bytes());
            body.extend_from_slice(bytes);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(b"--xyz--\r\n");
        body
    }

    fn cut(body: &[u8], len: usize) -> Vec<Bytes> {
        body.chunks(len).map(Bytes::copy_from_slice).collect()
    }

    #[test]
    fn names_and_boundaries() {
        for kind in [KIND, "Multipart/Form-Data; charset=x; Boundary=\"xyz\""] {
            assert_eq!(read(kind, cut(&form(&[]), 3)).unwrap(), []);
        }
        for kind in
            ["text/plain; boundary=xyz", "multipart/form-data", "multipart/form-data; boundary="]
        {
            assert!(read(kind, cut(&form(&[]), 3)).is_err(), "{kind}");
        }
        for (name, expected) in [
            ("a b.txt", "a b.txt"),
            ("C:\\x\\y.txt", "y.txt"),
            ("../../z", "z"),
            ("%22.txt", "\".txt"),
        ] {
            let found = read(KIND, cut(&form(&[(name, b"1")]), 1000)).unwrap();
            assert_eq!(found[0].0.file_name.as_deref(), Some(expected));
        }
        for (parameters, expected) in [
            ("name=f; filename=a.txt", Some("a.txt")),
            ("name=f;FileName = a.txt ; x=y", Some("a.txt")),
            ("FILENAME=\"a; b.txt\"", Some("a; b.txt")),
            ("name=\"x; filename=no\"; filename=\"a\\\"b\"", Some("a\"b")),
            ("name=\"filename=no\"", None),
            ("name=f; filename=\"\"", Some("")),
            ("filename", None),
        ] {
            let part = parse(&format!("Content-Disposition: form-data; {parameters}\r\n\r\n"));
            assert_eq!(part.file_name.as_deref(), expected, "{parameters}");
        }
        let field =
            b"--xyz\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nb\r\n--xyz--".as_slice();
        let found = read(KIND, cut(field, 5)).unwrap();
        assert_eq!(found, [(Part::default(), b"b".to_vec())]);
    }

    #[test]
    fn forms_that_are_none_are_refused() {
        let whole = form(&[("a", b"1")]);
        for len in 0..whole.len() - 4 {
            assert!(read(KIND, cut(&whole[..len], 7)).is_err(), "{len}");
        }
        let endless = [b"--xyz\r\nA: ".to_vec(), vec![b'x'; 100_000]].concat();
        assert!(read(KIND, cut(&endless, 1000)).is_err());
        assert!(read(KIND, cut(b"--other\r\n\r\n\r\n--other--", 100)).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]
        #[test]
        fn files_are_what_was_sent(
            files in proptest::collection::vec("[-\r\nxyz]{0,30}", 0..4),
            len in 1..40usize,
        ) {
            // A sender takes a boundary that is in no file.
            prop_assume!(files.iter().all(|file| !format!("\r\n{file}").contains("\r\n--xyz")));
            let named = files.iter().map(|file| ("n", file.as_bytes()));
            let sent: Vec<(&str, &[u8])> = named.collect();
            let found = read(KIND, cut(&form(&sent), len)).unwrap();
            let bytes: Vec<&[u8]> = found.iter().map(|(_, bytes)| bytes.as_slice()).collect();
            let expected: Vec<&[u8]> = files.iter().map(|file| file.as_bytes()).collect();
            prop_assert_eq!(bytes, expected);
        }

        #[test]
        fn any_bytes_are_a_form_or_refused(
            body in proptest::collection::vec(any::<u8>(), 0..200),
            len in 1..40usize,
        ) {
            let _ = read(KIND, cut(&body, len));
            let _ = read(KIND, cut(&[b"--xyz\r\n".to_vec(), body].concat(), len));
        }
    }
}
