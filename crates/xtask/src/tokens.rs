//! Rust as words, for who looks for names in it.

/// Names, `::`, and other signs one by one; without comments, texts, and what is for tests only.
pub fn tokens(text: &str) -> Vec<String> {
    without_tests(all_tokens(text))
}

/// The same with what is for tests only.
pub fn all_tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '"' => text_length(rest),
            'r' if raw_length(rest) > 0 => raw_length(rest),
            '\'' => char_length(rest),
            ':' if rest.starts_with("::") => {
                tokens.push("::".to_owned());
                2
            }
            _ if first.is_alphanumeric() || first == '_' => {
                let is_part = |c: char| c.is_alphanumeric() || c == '_';
                let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
                tokens.push(rest[..length].to_owned());
                length
            }
            _ => {
                if !first.is_whitespace() {
                    tokens.push(first.to_string());
                }
                first.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    tokens
}

pub fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_') && !["use", "as"].contains(&token)
}

/// Of a text in quotes.
fn text_length(rest: &str) -> usize {
    let mut is_escaped = false;
    let end = rest.char_indices().skip(1).find(|(_, c)| {
        let ends = *c == '"' && !is_escaped;
        is_escaped = *c == '\\' && !is_escaped;
        ends
    });
    end.map_or(rest.len(), |(at, _)| at + 1)
}

/// Of a text without escapes; 0 if it is none.
fn raw_length(rest: &str) -> usize {
    let hashes = rest[1..].chars().take_while(|c| *c == '#').count();
    let Some(body) = rest[1 + hashes..].strip_prefix('"') else { return 0 };
    let end = format!("\"{}", "#".repeat(hashes));
    body.find(&end).map_or(rest.len(), |at| rest.len() - body.len() + at + end.len())
}

/// Of a character in quotes; else of the quote before a lifetime.
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

/// Leaves out what follows `#[cfg(test)]`, up to the end of its braces or its semicolon.
fn without_tests(tokens: Vec<String>) -> Vec<String> {
    const TEST: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut left = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if !tokens[at..].iter().take(TEST.len()).eq(TEST) {
            left.push(tokens[at].clone());
            at += 1;
            continue;
        }
        let mut depth = 0;
        for token in &tokens[at..] {
            at += 1;
            depth += i32::from(token == "{") - i32::from(token == "}");
            if depth == 0 && (token == ";" || token == "}") {
                break;
            }
        }
    }
    left
}
