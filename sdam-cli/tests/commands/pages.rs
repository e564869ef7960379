//! Tests that completions and manual pages contain every subcommand and every option.

use std::fs;

use clap::Command;

use crate::{
    definition,
    program::{Room, Running},
    table::CASES,
};

/// Returns the names of a subcommand's options.
fn options(definition: &Command) -> Vec<&str> {
    definition.get_arguments().filter_map(|argument| argument.get_long()).collect()
}

#[test]
fn completions_have_every_subcommand_and_every_option() {
    let room = Room::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let ended = room.run(&["completions", shell]);
        assert_eq!((ended.code, &*ended.remarks), (0, ""));
        for case in CASES {
            assert!(ended.output.contains(case.name), "{shell} {}", case.name);
            for option in options(&definition(case.name)) {
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
        for option in options(&definition(case.name)) {
            let option = format!("\\-\\-{}", option.replace('-', "\\-"));
            assert!(page.contains(&option), "{} {option}", case.name);
        }
        let (_, example) = page.rsplit_once("Example").unwrap();
        assert!(example.contains(".nf\n\\&"), "{example}");
        assert!(example.contains(&format!("sdam {}", case.name)), "{example}");
    }
}
