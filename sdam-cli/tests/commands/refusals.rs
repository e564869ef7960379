//! Tests that wrong arguments lead to exit code 3 or 4, and to a message that names the input and
//! the remedy.

use std::{any::TypeId, path::PathBuf};

use clap::Arg;

use crate::{
    definition, each,
    program::{Ended, FILES, Room, arguments, room},
    table::{Case, Use},
};

/// Words that introduce a remedy. Each error message must contain one of them.
const REMEDIES: [&str; 14] = [
    "it needs ",
    "use ",
    "write ",
    "name ",
    "check ",
    "begin it with ",
    "create ",
    "values: ",
    "the checks are ",
    "which are ",
    "for example",
    "make room",
    "makes a recording",
    "tip: ",
];

/// A string that is not a valid value of any option with a type.
const NONSENSE: &str = "n0nsense";

/// Invalid connection strings, each with a part of its error message.
const STRINGS: [(&str, &str); 5] = [
    ("localhost:27017", "write mongodb://localhost:27017"),
    ("http://localhost", "begin it with mongodb://"),
    ("mongodb://localhost:99999", "from 1 to 65535"),
    ("mongodb://user:secret/word@localhost", "%2F"),
    ("mongodb://user:secret@", "the host is empty"),
];

/// Checks that a message names the input and the remedy.
pub(crate) fn is_helpful(ended: &Ended, input: &str) {
    let text = ended.text();
    let message = text.split("\nFor more information").next().unwrap();
    assert!(message.contains(input), "no {input:?} in {text}");
    let has_remedy = REMEDIES.iter().any(|word| message.contains(word));
    assert!(has_remedy, "no remedy in {text}");
}

/// Runs the program with the arguments `words`, and checks the exit code and the message.
fn refuses(room: &Room, words: &[String], code: i32, input: &str) {
    let ended = room.run(words);
    assert_eq!(ended.code, code, "{words:?}: {ended:?}");
    is_helpful(&ended, input);
}

fn words(case: &Case, text: &str) -> Vec<String> {
    arguments(case.name, text, "")
}

/// Returns the long options of a subcommand.
pub(crate) fn options(definition: &clap::Command) -> impl Iterator<Item = (&Arg, &str)> {
    let arguments = definition.get_arguments();
    arguments.filter_map(|argument| Some((argument, argument.get_long()?)))
}

#[test]
fn misspelled_subcommands_and_options_are_named_with_the_right_ones() {
    let room = Room::new();
    each(|case| {
        let ended = room.run(&[format!("{}s", case.name)]);
        assert_eq!(ended.code, 3, "{ended:?}");
        is_helpful(&ended, &format!("'{}'", case.name));

        let unknown = format!("--{NONSENSE}");
        let ended = room.run(&[case.name, &unknown]);
        assert_eq!(ended.code, 3, "{ended:?}");
        let text = ended.text();
        assert!(text.contains(&unknown) && text.contains("--help"), "{text}");

        let definition = definition(case.name);
        for (_, option) in options(&definition).filter(|(_, option)| option.len() > 4) {
            let mut misspelled = option.to_owned();
            misspelled.remove(2);
            refuses(&room, &words(case, &format!("--{misspelled}")), 3, &format!("'--{option}'"));
        }
    });
    let ended = room.run(&["mongodb://user:secret@localhost"]);
    assert_eq!(ended.code, 3);
    is_helpful(&ended, "'sdam watch mongodb://***@localhost'");
}

#[test]
fn wrong_values_are_named_with_what_the_option_needs() {
    let room = Room::new();
    // Options of these types accept any text, so they are not tested.
    let free = [TypeId::of::<String>(), TypeId::of::<PathBuf>()];
    each(|case| {
        let definition = definition(case.name);
        let is_typed = |argument: &Arg| {
            let kind = argument.get_value_parser().type_id();
            argument.get_action().takes_values() && free.iter().all(|free| kind != *free)
        };
        for (_, option) in options(&definition).filter(|(argument, _)| is_typed(argument)) {
            for value in [NONSENSE, "-1", ""] {
                // An empty tag set is valid: it matches every member.
                if value.is_empty() && option == "tags" {
                    continue;
                }
                let words = vec![case.name.to_owned(), format!("--{option}={value}")];
                let ended = room.run(&words);
                assert_eq!(ended.code, 3, "{words:?}: {ended:?}");
                is_helpful(&ended, &format!("'--{option}"));
                is_helpful(&ended, value);
            }
        }
        for position in definition.get_positionals().filter(|argument| is_typed(argument)) {
            let name = position.get_value_names().unwrap().first().unwrap();
            refuses(&room, &words(case, NONSENSE), 3, name);
        }
    });
}

#[test]
fn wrong_connection_strings_are_named_without_the_password() {
    let room = Room::new();
    each(|case| {
        if !definition(case.name).get_arguments().any(|argument| argument.get_id() == "uri") {
            return;
        }
        for (string, remedy) in STRINGS {
            let named = room.run(&[case.name, string]);
            let mut command = room.sdam(&[case.name]);
            let by_variable = crate::Running::start(command.env("SDAM_URI", string)).end();
            for ended in [named, by_variable] {
                assert_eq!(ended.code, 3, "{} {string}: {ended:?}", case.name);
                let text = ended.text().split_whitespace().collect::<Vec<_>>().join(" ");
                assert!(text.contains(remedy), "{} {string}: {text}", case.name);
                assert!(!text.contains("secret"), "{text}");
            }
        }
    });
}

#[test]
fn files_that_cannot_be_used_are_named() {
    each(|case| {
        let room = room();
        room.write("file", "");
        let check = |text: &str, file: &str, code: i32, input: &str| {
            refuses(&room, &arguments(case.name, text, file), code, input);
        };
        for (_, text, purpose) in case.paths {
            match purpose {
                Use::Input => {
                    check(text, "no/such/file", 3, "no/such/file: there is no such file");
                    check(text, "tmp", 3, "tmp: it is a folder");
                    check(text, "garbage", 3, "garbage:");
                    check(text, "/dev/zero", 3, "MiB");
                }
                Use::Output => {
                    check(text, "no/such/file", 4, "no/such/file: its folder does not exist");
                    check(text, "tmp", 4, "tmp: it is a folder");
                    check(text, "file/name", 4, "file/name: ");
                    check(text, "/dev/full", 4, "/dev/full: no space");
                }
                Use::Folder => check(text, "file/name", 4, "file/name: "),
            }
        }
        room.is_clean();
    });
}

#[test]
fn arguments_that_do_not_go_together_are_refused() {
    each(|case| {
        let room = room();
        for (text, expected) in case.refused {
            let ended = room.run(&words(case, text));
            assert_eq!(ended.code, 3, "{} {text}: {ended:?}", case.name);
            let said = ended.text().split_whitespace().collect::<Vec<_>>().join(" ");
            for expected in expected {
                assert!(said.contains(expected), "{} {text}: {said}", case.name);
            }
        }
    });
}

/// An escape sequence that changes the title of a terminal, the character that ends this sequence,
/// and a character that reverses text.
const ESCAPE: &str = "\u{1b}]0;title\u{7}\u{202e}";

#[test]
fn no_control_character_of_the_command_line_or_of_a_file_reaches_the_terminal() {
    let room = room();
    let refuses = |words: &[&str], shown: &str| {
        let ended = room.run(words);
        assert_eq!(ended.code, 3, "{words:?}: {ended:?}");
        let text = ended.text();
        assert!(text.contains(shown), "{words:?}: {text}");
        let is_harmful = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!text.contains(is_harmful), "{words:?}: {text:?}");
    };
    refuses(&[ESCAPE], "unrecognized subcommand");
    each(|case| {
        let definition = definition(case.name);
        refuses(&[case.name, &format!("--{ESCAPE}")], "unexpected argument");
        if definition.get_arguments().any(|argument| argument.get_id() == "uri") {
            refuses(&[case.name, &format!("mongodb://host/?{ESCAPE}")], "]0;title");
            refuses(&[case.name, &format!("mongodb://{ESCAPE}:x")], "port");
        }
    });
    let refuses_file = |words: &[&str], name: &str, content: &str| {
        room.write(name, content);
        refuses(&[words, &[name]].concat(), "]0;title");
    };
    // The last line of the recording contains an event of an unknown type.
    let few = FILES.iter().find(|(name, _)| *name == "few.jsonl");
    let few = String::from_utf8(few.unwrap().1.clone()).unwrap();
    let event = few.lines().find(|line| line.contains("\"event\":\"")).unwrap();
    let (before, after) = event.split_once("\"event\":\"").unwrap();
    let (_, after) = after.split_once('"').unwrap();
    let escaped = "\\u001b]0;title\\u0007\\u202e";
    let unknown = format!("{few}{before}\"event\":\"{escaped}\"{after}\n");
    refuses_file(&["report"], "bad.jsonl", &unknown);
    let targets = format!("a = {{ uri = 'mongodb://u@h/', passwordFile = \"{escaped}\" }}");
    refuses_file(&["export", "--targets"], "bad.toml", &targets);
    refuses_file(&["serve", "--scenario"], "bad", &format!("1s {ESCAPE}\n"));
}
