//! A section with all options of a role, made from the options themselves.

use clap::{Arg, Command};

use super::options::{self, is_list, is_secret, is_switch, key};

/// Characters of a line.
const WIDTH: usize = 100;
/// Names of values that are numbers.
const NUMBERS: [&str; 4] = ["N", "MS", "SECONDS", "RATIO"];

/// Makes the section. All lines are comments except the first: options without a line have their
/// defaults.
pub fn section(command: &Command) -> String {
    let mut text = format!("[{}]\n", command.get_name());
    for arg in options::of(command) {
        text.push('\n');
        let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string);
        comment(&mut text, help.unwrap_or_default().trim_end_matches('.'));
        let choices: Vec<String> =
            arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
        if !choices.is_empty() && !is_switch(arg) {
            comment(&mut text, &format!("One of: {}", choices.join(", ")));
        }
        if is_secret(arg) {
            comment(&mut text, "The first line of a file has it");
        }
        if let Some(variable) = arg.get_env() {
            comment(&mut text, &format!("Environment: {}", variable.to_string_lossy()));
        }
        text.push_str(&format!("#{} = {}\n", key(arg), value(arg)));
    }
    text
}

/// Returns the default, or the kind of value.
fn value(arg: &Arg) -> String {
    if is_switch(arg) {
        return "false".to_owned();
    }
    let defaults = arg.get_default_values();
    let shown = match defaults.first() {
        Some(first) => {
            let first = first.to_string_lossy();
            if first.parse::<f64>().is_ok() { first.into_owned() } else { format!("{first:?}") }
        }
        None => {
            let names = arg.get_value_names().unwrap_or_default();
            let quoted = |name: &str| {
                if NUMBERS.contains(&name) { name.to_owned() } else { format!("{name:?}") }
            };
            let all: Vec<String> = names.iter().map(|name| quoted(name.as_str())).collect();
            if all.is_empty() {
                format!("{:?}", arg.get_id().as_str().to_uppercase())
            } else {
                all.join(", ")
            }
        }
    };
    let shown = if is_secret(arg) { "\"FILE\"".to_owned() } else { shown };
    if is_list(arg) { format!("[{shown}]") } else { shown }
}

fn comment(text: &mut String, words: &str) {
    let mut line = String::from("#");
    for word in words.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > WIDTH {
            text.push_str(&line);
            text.push('\n');
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    text.push_str(&line);
    text.push('\n');
}
