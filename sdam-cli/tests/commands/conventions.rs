//! Checks that all subcommands follow the rules in CONTRIBUTING.md, and that completions and manual
//! pages contain every subcommand and every option.

use std::{collections::BTreeMap, fs};

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    definition, each,
    program::{Room, Running, arguments, room},
    refusals::options,
    table::CASES,
};

#[test]
fn an_option_has_the_same_kind_of_value_in_every_subcommand() {
    let mut known = BTreeMap::new();
    for case in CASES {
        for (argument, name) in options(&definition(case.name)) {
            let values = argument.get_value_names().unwrap_or_default();
            let values: Vec<_> = values.iter().map(ToString::to_string).collect();
            let kind = (
                argument.get_action().takes_values(),
                values,
                argument.get_value_parser().type_id(),
            );
            let (first, other) = known.entry(name.to_owned()).or_insert((kind.clone(), case.name));
            assert_eq!(*first, kind, "--{name} of {other} and {}", case.name);
        }
    }
}

#[test]
fn a_json_document_begins_with_its_schema_and_its_keys_are_in_camel_case() {
    let mut known = CASES.iter().filter(|case| has_json(case.name));
    assert!(known.next().is_some() && known.next().is_some());
    each(|case| {
        if !has_json(case.name) {
            return;
        }
        let room = room();
        let words = arguments(case.name, "--json URI", "");
        let mut running = Running::start(&mut room.interruptible(&words));
        let line = running.line();
        running.signal(Signal::TERM);
        running.end();
        let schema = line.strip_prefix("{\"schema\":\"sdam.").unwrap_or_else(|| panic!("{line}"));
        let (name, rest) = schema.split_once('/').unwrap();
        assert!(name.chars().all(|letter| letter.is_ascii_lowercase()), "{line}");
        assert!(rest.starts_with("1\","), "{line}");
        check_keys(&serde_json::from_str(&line).unwrap());
    });
}

fn has_json(name: &str) -> bool {
    options(&definition(name)).any(|(_, option)| option == "json")
}

fn check_keys(value: &Value) {
    match value {
        Value::Array(list) => list.iter().for_each(check_keys),
        Value::Object(map) => {
            for (key, value) in map {
                assert!(key.chars().all(|letter| letter.is_ascii_alphanumeric()), "{key}");
                assert!(key.starts_with(|letter: char| letter.is_ascii_lowercase()), "{key}");
                // The keys in `tags` are names that the user has chosen.
                if key != "tags" {
                    check_keys(value);
                }
            }
        }
        _ => {}
    }
}

#[test]
fn completions_have_every_subcommand_and_every_option() {
    let room = Room::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let ended = room.run(&["completions", shell]);
        assert_eq!((ended.code, &*ended.remarks), (0, ""));
        for case in CASES {
            assert!(ended.output.contains(case.name), "{shell} {}", case.name);
            for (_, option) in options(&definition(case.name)) {
                // Completions for fish contain options without their dashes.
                let has = [format!("--{option}"), format!("-l {option}")]
                    .iter()
                    .any(|option| ended.output.contains(option));
                assert!(has, "{shell} {} --{option}", case.name);
            }
        }
    }
}

#[test]
fn the_shell_takes_the_completions() {
    let room = Room::new();
    let script = "eval \"$(sdam completions bash)\"; COMP_WORDS=(sdam watch --rec); COMP_CWORD=2; \
                  _sdam sdam --rec watch; echo \"${COMPREPLY[@]}\"";
    let ended = Running::start(room.command("bash").args(["--norc", "-c", script])).end();
    assert_eq!((ended.code, &*ended.output, &*ended.remarks), (0, "--record\n", ""));
}

#[test]
fn manual_pages_have_every_option_and_the_example_as_printed() {
    let room = Room::new();
    let ended = room.run(&["man", "--dir", "new/man1"]);
    assert_eq!((ended.code, &*ended.text()), (0, ""));
    let read = |name: &str| fs::read_to_string(room.path().join("new/man1").join(name)).unwrap();
    let program = read("sdam.1");
    assert_eq!(room.run(&["man"]).output, program);
    for case in CASES {
        let page = read(&format!("sdam-{}.1", case.name));
        assert_eq!(room.run(&["man", case.name]).output, page);
        assert!(program.contains(&format!("sdam\\-{}(1)", case.name)), "{program}");
        for (_, option) in options(&definition(case.name)) {
            let option = format!("\\-\\-{}", option.replace('-', "\\-"));
            assert!(page.contains(&option), "{} {option}", case.name);
        }
        let (_, example) = page.rsplit_once("Example").unwrap();
        assert!(example.contains(".nf\n\\&"), "{example}");
        assert!(example.contains(&format!("sdam {}", case.name)), "{example}");
    }
}
