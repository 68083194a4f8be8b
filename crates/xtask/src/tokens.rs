//! Rust source as a list of words, in which checks search for names and texts.

/// A name, a sign or a text, and its first line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    pub line: usize,
    /// Text of the word; a literal is without its quotes, and with its escapes.
    pub text: String,
    pub is_literal: bool,
}

/// Returns names, `::`, and other signs one by one; without comments, texts, and code for tests
/// only.
pub fn tokens(text: &str) -> Vec<String> {
    names(&without_tests(words(text)))
}

/// Returns the names like `tokens`, including code that is for tests only.
pub fn all_tokens(text: &str) -> Vec<String> {
    names(&words(text))
}

fn names(words: &[Word]) -> Vec<String> {
    words.iter().filter(|word| !word.is_literal).map(|word| word.text.clone()).collect()
}

/// Returns names, signs and texts, without comments.
pub fn words(text: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while let Some(first) = rest.chars().next() {
        let (length, quotes) = match first {
            '/' if rest.starts_with("//") => (rest.find('\n').unwrap_or(rest.len()), None),
            '"' => (text_length(rest), Some(1)),
            'r' if raw_length(rest) > 0 => (raw_length(rest), Some(raw_quotes(rest))),
            '\'' => (char_length(rest), None),
            _ if rest.starts_with("::") => (2, Some(0)),
            _ if is_part(first) => (rest.find(|c| !is_part(c)).unwrap_or(rest.len()), Some(0)),
            _ if first.is_whitespace() => (first.len_utf8(), None),
            _ => (first.len_utf8(), Some(0)),
        };
        let word = &rest[..length];
        if let Some(quotes) = quotes {
            let end = length.saturating_sub(quotes).max(quotes);
            let start = if first == 'r' && quotes > 0 { quotes + 1 } else { quotes };
            let text = word.get(start..end).unwrap_or_default().to_owned();
            words.push(Word { line, text, is_literal: quotes > 0 });
        }
        line += word.matches('\n').count();
        rest = &rest[length..];
    }
    words
}

fn is_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

pub fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_') && !["use", "as"].contains(&token)
}

/// Returns the length of a text in quotes.
fn text_length(rest: &str) -> usize {
    let mut is_escaped = false;
    let end = rest.char_indices().skip(1).find(|(_, c)| {
        let ends = *c == '"' && !is_escaped;
        is_escaped = *c == '\\' && !is_escaped;
        ends
    });
    end.map_or(rest.len(), |(at, _)| at + 1)
}

/// Returns the length of a text without escapes; 0 if it is no such text.
fn raw_length(rest: &str) -> usize {
    let hashes = rest[1..].chars().take_while(|c| *c == '#').count();
    let Some(body) = rest[1 + hashes..].strip_prefix('"') else { return 0 };
    let end = format!("\"{}", "#".repeat(hashes));
    body.find(&end).map_or(rest.len(), |at| rest.len() - body.len() + at + end.len())
}

/// Returns the length of the quotes at either end of such a text, without the `r`.
fn raw_quotes(rest: &str) -> usize {
    1 + rest[1..].chars().take_while(|c| *c == '#').count()
}

/// Returns the length of a character in quotes, or of the quote before a lifetime.
fn char_length(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => {
            chars.next();
            chars.find(|(_, c)| *c == '\'').map_or(rest.len(), |(at, _)| at + 1)
        }
        Some(_) => chars.next().filter(|(_, c)| *c == '\'').map_or(1, |(at, _)| at + 1),
        None => 1,
    }
}

/// Removes the item after `#[cfg(test)]`, up to the end of its braces or its semicolon.
pub fn without_tests(words: Vec<Word>) -> Vec<Word> {
    const TEST: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut left = Vec::new();
    let mut at = 0;
    while at < words.len() {
        if !words[at..].iter().take(TEST.len()).map(|word| word.text.as_str()).eq(TEST) {
            left.push(words[at].clone());
            at += 1;
            continue;
        }
        let mut depth = 0;
        for word in &words[at..] {
            at += 1;
            if word.is_literal {
                continue;
            }
            depth += i32::from(word.text == "{") - i32::from(word.text == "}");
            if depth == 0 && (word.text == ";" || word.text == "}") {
                break;
            }
        }
    }
    left
}
