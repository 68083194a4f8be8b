//! The `_bulk` of Elasticsearch: lines of actions, each followed by the line of a document.
//!
//! Most shippers send the same action again and again, and documents that are stored as they are.
//! So an action equal to the previous action is not parsed again, and nothing of the body is copied
//! except documents, into lines.

use std::borrow::Cow;

use cairn_base::{Error, Result};
use memchr::memchr;

use crate::batch::RecordBatch;
use crate::json::{self, Cursor};
use crate::limits::{ID_BYTES, SOURCE_BYTES};

/// The action line of one item. The item's record has the same number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item<'a> {
    pub action: &'static str,
    pub index: Cow<'a, str>,
    /// Id of the document, as it was sent; empty if the store is to choose one.
    pub id: Cow<'a, str>,
    /// The reason to refuse the record, whatever the document is.
    refused: Option<&'static str>,
}

const NO_NAME: &str = "name the source: `_index` in the item, or POST /NAME/_bulk";
const ONLY_ADDED: &str = "records of logs are only ever added: use create or index";
const LONG_ID: &str = "an _id of more than 512 bytes";
const NOT_HERE: &str = "a pipeline or a condition on versions: there are none here";

/// Takes the lines of a body. `index` is the one of the path, for actions without an index. Returns
/// an item for each action, in order.
///
/// # Errors
/// `Invalid` if a line in the place of an action is not an action, `TooLarge` for too many; then
/// nothing of the body counts.
pub fn parse<'a>(body: &'a [u8], index: &'a str, batch: &mut RecordBatch) -> Result<Vec<Item<'a>>> {
    let mut actions = Actions::new(body, index)?;
    let mut items = Vec::new();
    while let Some((item, document)) = actions.next()? {
        match item.refused {
            None => batch.record(&item.index, |out| event(document, out)),
            Some(why) => batch.refuse(Error::Invalid(format!("{}: {why}", item.action))),
        }
        batch.check_records()?;
        items.push(item);
    }
    Ok(items)
}

/// Returns the items of a body, as [`parse`] does, and takes no records.
///
/// # Errors
/// Same errors as [`parse`]; `TooLarge` for more than `most`.
pub fn items<'a>(body: &'a [u8], index: &'a str, most: usize) -> Result<Vec<Item<'a>>> {
    let mut actions = Actions::new(body, index)?;
    let mut items = Vec::new();
    while let Some((item, _)) = actions.next()? {
        if items.len() == most {
            return Err(Error::TooLarge(format!("more than {most} items")));
        }
        items.push(item);
    }
    Ok(items)
}

/// The actions of a body, and the rest of the body.
struct Actions<'a> {
    rest: &'a [u8],
    index: &'a str,
    /// The line of the previous action, and its item.
    last: Option<(&'a [u8], Item<'a>)>,
}

impl<'a> Actions<'a> {
    /// Begins to read actions.
    ///
    /// # Errors
    /// `Invalid` if no source can have the name of the index, which each item would repeat.
    fn new(body: &'a [u8], index: &'a str) -> Result<Actions<'a>> {
        if index.len() > SOURCE_BYTES {
            Err(Error::Invalid(format!("the index in the path: at most {SOURCE_BYTES} bytes")))
        } else {
            Ok(Actions { rest: body, index, last: None })
        }
    }

    /// Returns the next line that is not empty.
    fn line(&mut self) -> Option<&'a [u8]> {
        while !self.rest.is_empty() {
            let end = memchr(b'\n', self.rest).unwrap_or(self.rest.len());
            let line = self.rest.get(..end).unwrap_or_default().trim_ascii();
            self.rest = self.rest.get(end + 1..).unwrap_or_default();
            if !line.is_empty() {
                return Some(line);
            }
        }
        None
    }

    /// Returns the next action and its document.
    fn next(&mut self) -> Result<Option<(Item<'a>, &'a [u8])>> {
        let Some(line) = self.line() else { return Ok(None) };
        let item = match &self.last {
            Some((known, item)) if *known == line => item.clone(),
            _ => {
                let item = action(line, self.index)?;
                self.last = Some((line, item.clone()));
                item
            }
        };
        let document = match item.action {
            "delete" => &[],
            _ => self.line().unwrap_or_default(),
        };
        Ok(Some((item, document)))
    }
}

fn action<'a>(line: &'a [u8], default: &'a str) -> Result<Item<'a>> {
    let mut found = None;
    Cursor::new(line)?.object(|cursor, name| {
        let (action, refused) = match name {
            "index" => ("index", None),
            "create" => ("create", None),
            "update" => ("update", Some(ONLY_ADDED)),
            "delete" => ("delete", Some(ONLY_ADDED)),
            _ => return Err(Error::Invalid(format!("action {name:.40?}: use create or index"))),
        };
        let mut item = Item { action, index: default.into(), id: Cow::default(), refused };
        cursor.object(|cursor, name| {
            let is_null = cursor.kind() == Some(b'n');
            match name {
                "_index" => item.index = cursor.string()?,
                "_id" if !is_null => item.id = cursor.string_or_number()?,
                "pipeline" | "if_seq_no" | "if_primary_term" | "version" if !is_null => {
                    item.refused = item.refused.or(Some(NOT_HERE));
                    cursor.skip()?;
                }
                _ => cursor.skip()?,
            }
            Ok(())
        })?;
        if item.id.len() > ID_BYTES {
            item.refused = item.refused.or(Some(LONG_ID));
        }
        if item.index.is_empty() {
            item.refused = item.refused.or(Some(NO_NAME));
        }
        found = Some(item);
        Ok(())
    })?;
    found.ok_or_else(|| Error::Invalid("a line that should be an action is none".into()))
}

/// Adds the document as it was sent.
fn event(document: &[u8], out: &mut Vec<u8>) -> Result<()> {
    if !document.starts_with(b"{") {
        return Err(Error::Invalid("a document that is no object".into()));
    }
    json::check(document)?;
    json::name(out, "event");
    // Carriage returns are dropped: outside of texts they are white space, and inside JSON allows
    // none.
    let mut rest = document;
    while let Some(at) = memchr(b'\r', rest) {
        out.extend_from_slice(rest.get(..at).unwrap_or_default());
        rest = rest.get(at + 1..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
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
        let seen: Vec<(&str, &str, &str)> =
            items.iter().map(|item| (item.action, &*item.index, &*item.id)).collect();
        let expected = [
            ("create", "a", "1"),
            ("index", "path", ""),
            ("delete", "path", "7"),
            ("update", "path", ""),
            ("index", "path", ""),
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
    fn an_action_that_is_sent_again_means_the_same_and_no_more() {
        let body = b"{\"create\":{\"_index\":\"a\\u002f1\",\"_id\":\"1\"}}\n{\"m\":1}\n".repeat(2);
        let body = [&body[..], b"{\"create\":{}}\n{\"m\":\r2 }\r\n{\"create\":{}} \n{}\n"].concat();
        let mut batch = RecordBatch::new(Timestamp(0));
        let items = parse(&body, "i", &mut batch).unwrap();
        let seen: Vec<(&str, &str)> = items.iter().map(|item| (&*item.index, &*item.id)).collect();
        assert_eq!(seen, [("a/1", "1"), ("a/1", "1"), ("i", ""), ("i", "")]);
        assert_eq!(batch.text("a%2F1"), "{\"event\":{\"m\":1}}\n".repeat(2));
        assert_eq!(batch.text("i"), "{\"event\":{\"m\":2 }}\n{\"event\":{}}\n");
    }

    #[test]
    fn what_an_action_asks_for_and_cannot_have_refuses_its_record_alone() {
        let long = "x".repeat(ID_BYTES + 1);
        let asks = [
            format!("{{\"_id\":\"{long}\"}}"),
            "{\"pipeline\":\"p\"}".to_owned(),
            "{\"if_seq_no\":7}".to_owned(),
            "{\"version\":1,\"_id\":\"a\"}".to_owned(),
            "{\"pipeline\":null,\"routing\":\"r\"}".to_owned(),
            format!("{{\"_index\":\"{long}\"}}"),
        ];
        let body: String = asks.iter().map(|ask| format!("{{\"create\":{ask}}}\n{{}}\n")).collect();
        let mut batch = RecordBatch::new(Timestamp(0));
        assert_eq!(parse(body.as_bytes(), "i", &mut batch).unwrap().len(), asks.len());
        let refused: Vec<usize> = batch.refused.iter().map(|(number, _)| *number).collect();
        assert_eq!(refused, [0, 1, 2, 3, 5]);
        assert!(batch.refused.iter().all(|(_, why)| why.kind() == "invalid"));
    }

    #[test]
    fn an_index_in_the_path_that_no_source_can_have_is_not_repeated_for_each_item() {
        let (body, long) = ("{\"create\":{}}\n{}\n".repeat(9), "x".repeat(SOURCE_BYTES + 1));
        let mut batch = RecordBatch::new(Timestamp(0));
        let outcome = parse(body.as_bytes(), &long, &mut batch);
        assert_eq!(outcome.unwrap_err().kind(), "invalid");
        assert!(super::items(body.as_bytes(), &long, 9).is_err());
        assert_eq!(batch.records, 0);
    }

    #[test]
    fn an_item_without_a_source_says_how_to_name_one() {
        let mut batch = RecordBatch::new(Timestamp(0));
        let body = b"{\"create\":{}}\n{}\n{\"create\":{\"_index\":\"a\"}}\n{}\n";
        let items = parse(body, "", &mut batch).unwrap();
        let refused: Vec<_> = items.iter().map(|item| item.refused).collect();
        assert_eq!(refused, [Some(NO_NAME), None]);
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
