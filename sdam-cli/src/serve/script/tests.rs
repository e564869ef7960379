use sdam_sim::action::Target;

use super::*;

fn parse(text: &str) -> Result<Script, Failure> {
    Script::parse("faults.txt".to_owned(), text)
}

#[test]
fn lines_have_their_own_time_or_follow_the_one_before() {
    let script = parse(
        "# The primary dies.\n\
         kill primary # at once\n\
         \n\
         sleep 2\n\
         heal\n\
         10s kill 1\n\
         12s status\n\
         500ms kill 2\n",
    );
    let script = script.unwrap();
    let kill = |target| Command::Step(Action::Kill(target).into());
    let lines = script.lines.iter();
    let found: Vec<_> = lines
        .map(|line| {
            let millis = line.at.as_millis();
            (line.number, millis, line.is_timed, line.command.clone())
        })
        .collect();
    assert_eq!(
        found,
        [
            (2, 0, false, kill(Target::Primary)),
            (4, 0, false, Command::Sleep(Duration::from_secs(2))),
            (8, 500, true, kill(2.into())),
            (5, 2000, false, Command::Step(Action::Heal.into())),
            (6, 10_000, true, kill(1.into())),
            (7, 12_000, true, Command::Status),
        ]
    );
}

#[test]
fn each_wrong_line_is_named_with_a_suggestion_or_the_syntax() {
    let check = |line: &str, expected: &str| {
        let text = format!("heal\n{line}\n\n{line}\n");
        let mut remarks = Vec::new();
        let exit = parse(&text).unwrap_err().report(&mut remarks).unwrap();
        assert_eq!(exit, crate::exit::Exit::CONFIGURATION);
        let expected =
            format!("error: faults.txt:2: {expected}\nerror: faults.txt:4: {expected}\n");
        assert_eq!(String::from_utf8(remarks).unwrap(), expected);
    };
    check("kil primary", "`kil` is not an action: did you mean `kill`?");
    check("1s restrat 0", "`restrat` is not an action: did you mean `restart`?");
    check(
        "5s net blackhol 1",
        "`blackhol` is not a fault of the network: did you mean `blackhole`?",
    );
    check("kill primay", "`primay` is not MEMBER: did you mean `primary`?");
    check("slep 5", "`slep` is not an action: did you mean `sleep`?");
    check(
        "reconfig 0 prioriti=1",
        "`prioriti=1` is not a setting of a member: did you mean `priority`?",
    );
    check(
        "failpoint 0 comands=hello",
        "`comands=hello` is not a setting of a fail point: did you mean `commands`?",
    );
    check("kill", "MEMBER is missing; write it as `kill MEMBER`");
    check("sleep long", "`long` is no time: it needs a number of seconds, for example 2.5");
    check("5s # later", "the step is missing; write a line as `1.5s kill primary`");
    check(
        "7 kill 0",
        "`7` is not a time; write a line as `AT VERB ...`, such as `1.5s kill primary`",
    );
}

#[test]
fn every_verb_that_is_announced_is_a_command_with_help() {
    for verb in Command::verbs() {
        if let Err(error) = Command::parse(verb) {
            let is_known = error.contains(" is missing; write it as `") || verb == "sleep";
            assert!(is_known, "{verb}: {error}");
        }
        let help = Command::help();
        assert!(help.lines().any(|line| line.starts_with(verb)), "{verb}");
    }
}
