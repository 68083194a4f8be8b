//! The `_bulk` of Elasticsearch: lines of actions, each with the line of a document.

use std::borrow::Cow;

use cairn_base::{Error, Result};

use crate::batch::RecordBatch;
use crate::json::{self, Cursor};

/// What is asked for in a line of an action.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    pub action: &'static str,
    pub index: String,
    /// As it was sent; empty if the store is to make one up.
    pub id: String,
    /// The number of its record.
    pub record: usize,
}

/// Takes the lines of a body. `index` is that of the path, for actions that name none. Returns an
/// item for each action, in their order.
///
/// # Errors
/// `Invalid` if a line that should be an action is none, and `TooLarge` for too many; then nothing
/// of the body counts.
pub fn parse(body: &[u8], index: &str, batch: &mut RecordBatch) -> Result<Vec<Item>> {
    let mut lines = lines(body);
    let mut items = Vec::new();
    while let Some(line) = lines.next() {
        let mut item = action(line, index)?;
        item.record = batch.records;
        let document = (item.action != "delete").then(|| lines.next().unwrap_or_default());
        match document {
            Some(document) if matches!(item.action, "index" | "create") => {
                batch.record(&item.index, |out| event(document, out));
            }
            _ => {
                let what = format!("{}: records of logs are only ever added", item.action);
                batch.refuse(Error::Invalid(what));
            }
        }
        batch.check_records()?;
        items.push(item);
    }
    Ok(items)
}

/// The items of a body, as [`parse`] returns them, of which nothing is taken.
///
/// # Errors
/// As [`parse`]; `TooLarge` for more than `most`.
pub fn items(body: &[u8], index: &str, most: usize) -> Result<Vec<Item>> {
    let mut lines = lines(body);
    let mut items = Vec::new();
    while let Some(line) = lines.next() {
        let item = Item { record: items.len(), ..action(line, index)? };
        if item.action != "delete" {
            lines.next();
        }
        if items.len() == most {
            return Err(Error::TooLarge(format!("more than {most} items")));
        }
        items.push(item);
    }
    Ok(items)
}

fn lines(body: &[u8]) -> impl Iterator<Item = &[u8]> {
    body.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty())
}

fn action(line: &[u8], default: &str) -> Result<Item> {
    let mut found = None;
    Cursor::new(line)?.object(|cursor, name| {
        let action = match name {
            "index" => "index",
            "create" => "create",
            "update" => "update",
            "delete" => "delete",
            _ => return Err(Error::Invalid(format!("action {name:.40?}: use create or index"))),
        };
        let mut item = Item { action, index: default.to_owned(), id: String::new(), record: 0 };
        cursor.object(|cursor, name| {
            match name {
                "_index" => item.index = cursor.string()?.into_owned(),
                "_id" if cursor.kind() != Some(b'n') => {
                    item.id = cursor.string_or_number().map(Cow::into_owned)?;
                }
                _ => cursor.skip()?,
            }
            Ok(())
        })?;
        found = Some(item);
        Ok(())
    })?;
    found.ok_or_else(|| Error::Invalid("a line that should be an action is none".into()))
}

/// Adds the document as it was sent.
fn event(document: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let document = std::str::from_utf8(document.trim_ascii())
        .map_err(|error| Error::Invalid(format!("a document that is not UTF-8: {error}")))?;
    if !document.starts_with('{') {
        return Err(Error::Invalid("a document that is no object".into()));
    }
    Cursor::new(document.as_bytes())?;
    json::name(out, "event");
    // Outside of texts a carriage return is only a space, and inside there can be none.
    out.extend(document.bytes().filter(|byte| *byte != b'\r'));
    Ok(())
}

#[cfg(test)]
mod tests {
    use cairn_base::Timestamp;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_bad_document_leaves_the_others() {
        let body = b"{\"create\":{\"_index\":\"a\",\"_id\":\"1\"}}\n{\"m\": 1}\r\n\
                     {\"index\":{}}\n{\"m\":\n\
                     {\"delete\":{\"_id\":7}}\n\
                     {\"update\":{}}\n{\"doc\":{}}\n\n\
                     {\"index\":{\"_id\":null}}\n{\"m\":\"\xc3\xa9\"}";
        let mut batch = RecordBatch::new(Timestamp(0));
        let items = parse(body, "path", &mut batch).unwrap();
        let seen: Vec<(&str, &str, &str, usize)> = items
            .iter()
            .map(|item| (item.action, item.index.as_str(), item.id.as_str(), item.record))
            .collect();
        let expected = [
            ("create", "a", "1", 0),
            ("index", "path", "", 1),
            ("delete", "path", "7", 2),
            ("update", "path", "", 3),
            ("index", "path", "", 4),
        ];
        assert_eq!(seen, expected);
        assert_eq!(batch.text("a"), "{\"event\":{\"m\": 1}}\n");
        assert_eq!(batch.text("path"), "{\"event\":{\"m\":\"é\"}}\n");
        let refused: Vec<usize> = batch.refused.iter().map(|(number, _)| *number).collect();
        assert_eq!(refused, [1, 2, 3]);
        assert_eq!(super::items(body, "path", 5).unwrap(), items);
        assert!(super::items(body, "path", 4).is_err());
    }

    #[test]
    fn a_line_that_is_no_action_is_an_error() {
        for bad in ["{}", "x", "{\"m\":1}\n", "[]", "{\"create\":1}"] {
            assert!(
                parse(bad.as_bytes(), "i", &mut RecordBatch::new(Timestamp(0))).is_err(),
                "{bad}"
            );
        }
        let nothing = parse(b"\n \n", "i", &mut RecordBatch::new(Timestamp(0)));
        assert!(nothing.unwrap().is_empty());
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let body = [b"{\"index\":{}}\n", &bytes[..]].concat();
            let mut batch = RecordBatch::new(Timestamp(0));
            if let Ok(items) = parse(&body, "i", &mut batch) {
                prop_assert_eq!(items.len(), batch.records);
            }
            prop_assert!(batch.lines.iter().all(|lines| lines.ends.len()
                == lines.bytes.iter().filter(|byte| **byte == b'\n').count()));
        }
    }
}
