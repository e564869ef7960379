//! Parses actions from lines of text.

use std::{str::FromStr, time::Duration};

use super::{Action, Edit, FailCommand, HorizonPolicy, Impostor, Mode, Target};
use crate::{
    MemberId,
    config::{MemberConfig, SetConfig},
};

/// The error returned when an [`Action`] cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseActionError(pub(crate) String);

impl Action {
    /// The syntax and meaning of every action, one per line.
    pub const SYNTAX: &str = "\
stepdown [SECONDS]             the primary steps down for 60 s and hands over
stepup MEMBER                  the member runs for election
replfreeze MEMBER SECONDS      the member does not run for election for a while
kill MEMBER                    the process ends without a shutdown
shutdown MEMBER                the process shuts down cleanly
restart MEMBER                 the process starts again
freeze MEMBER                  the process stops replying; its connections stay open
thaw MEMBER                    the frozen process continues
partition MEMBERS MEMBERS      the two groups of members (such as 0,1) are disconnected
isolate MEMBER                 the member is disconnected from all other members
cutoff MEMBER                  clients cannot reach the member
splitbrain                     a second primary is elected while the first goes on
heal                           partition, isolate, cutoff and splitbrain end
reconfig MEMBER KEY=VALUE...   priority=N votes=BOOL hidden=BOOL delay=SECONDS tags=NAME:VALUE,...
setconfig NAME HOST...         the set gets these members, each HOST[;KEY=VALUE]... with the keys of
                               reconfig and arbiter=BOOL
add NUMBER                     the process joins the set
remove MEMBER                  the member leaves the set
maintenance MEMBER on|off      the member is not readable
horizon [close|error]          the split horizon changes
failpoint MEMBER off|KEY=VALUE...  commands=NAME,... times=N skip=N code=N close block=MILLIS
                               app=NAME labels=LABEL,... writeconcern=CODE
                               reply=stray|wrong-response-to|no-ok|malformed|more-to-come
exhaust MEMBER on|off          the member streams, or sends one reply to each awaitable hello
flood MEMBER SECONDS|off       the member reports a topology change at this interval
lag MEMBER SECONDS             the member lags behind
upgrade MEMBER VERSION         the member restarts with another release
impostor MEMBER KIND|off       another server answers clients in its place: standalone, mongos,
                               ghost, arbiter, hidden, renamed, other-set or other-primary
MEMBER is a number from 0, `primary` or `secondary`.";
}

impl FromStr for Action {
    type Err = ParseActionError;

    fn from_str(line: &str) -> Result<Self, ParseActionError> {
        let mut words = Words(line.split_whitespace());
        let action = words.action()?;
        match words.0.next() {
            None => Ok(action),
            Some(word) => {
                Err(ParseActionError(format!("`{word}` is unexpected after a complete action")))
            }
        }
    }
}

impl FromStr for Target {
    type Err = ParseActionError;

    fn from_str(word: &str) -> Result<Self, ParseActionError> {
        match word {
            "primary" => Ok(Self::Primary),
            "secondary" => Ok(Self::Secondary),
            number => value("MEMBER", number).map(|number| Self::Member(MemberId(number))),
        }
    }
}

/// The remaining words of a line.
struct Words<'a>(std::str::SplitWhitespace<'a>);

impl<'a> Words<'a> {
    fn action(&mut self) -> Result<Action, ParseActionError> {
        Ok(match self.word("an action")? {
            "stepdown" => Action::StepDown {
                period: self.0.next().map_or(Ok(Duration::from_secs(60)), parse_seconds)?,
            },
            "stepup" => Action::StepUp(self.target()?),
            "replfreeze" => Action::ReplSetFreeze(self.target()?, self.seconds()?),
            "kill" => Action::Kill(self.target()?),
            "shutdown" => Action::Shutdown(self.target()?),
            "restart" => Action::Restart(self.target()?),
            "freeze" => Action::Freeze(self.target()?),
            "thaw" => Action::Thaw(self.target()?),
            "partition" => Action::Partition(self.targets()?, self.targets()?),
            "isolate" => Action::Isolate(self.target()?),
            "cutoff" => Action::CutOff(self.target()?),
            "splitbrain" => Action::SplitBrain,
            "heal" => Action::Heal,
            "reconfig" => Action::Edit(self.target()?, self.rest("KEY=VALUE", edit)?),
            "setconfig" => Action::Reconfig(self.set_config()?),
            "add" => Action::Add(MemberId(value("NUMBER", self.word("NUMBER")?)?)),
            "remove" => Action::Remove(self.target()?),
            "maintenance" => Action::Maintenance(self.target()?, self.switch()?),
            "horizon" => Action::Horizon(match self.0.next() {
                None | Some("close") => HorizonPolicy::Close,
                Some("error") => HorizonPolicy::Error,
                Some(word) => return Err(unexpected("close or error", word)),
            }),
            "failpoint" => Action::FailPoint(self.target()?, self.fail_command()?),
            "exhaust" => Action::Exhaust(self.target()?, self.switch()?),
            "flood" => Action::Flood(self.target()?, unless_off(self.word("SECONDS")?, period)?),
            "lag" => Action::Lag(self.target()?, self.seconds()?),
            "upgrade" => Action::Upgrade(self.target()?, value("VERSION", self.word("VERSION")?)?),
            "impostor" => {
                Action::Impostor(self.target()?, unless_off(self.word("KIND")?, impostor)?)
            }
            word => return Err(unexpected("an action", word)),
        })
    }

    fn word(&mut self, expected: &str) -> Result<&'a str, ParseActionError> {
        self.0.next().ok_or_else(|| ParseActionError(format!("{expected} is missing")))
    }

    fn target(&mut self) -> Result<Target, ParseActionError> {
        self.word("MEMBER")?.parse()
    }

    fn targets(&mut self) -> Result<Vec<Target>, ParseActionError> {
        self.word("MEMBERS")?.split(',').map(str::parse).collect()
    }

    fn seconds(&mut self) -> Result<Duration, ParseActionError> {
        parse_seconds(self.word("SECONDS")?)
    }

    fn switch(&mut self) -> Result<bool, ParseActionError> {
        switch(self.word("on or off")?)
    }

    /// Reads the remaining words. There must be at least one.
    fn rest<T>(
        &mut self,
        expected: &str,
        parse: fn(&str) -> Result<T, ParseActionError>,
    ) -> Result<Vec<T>, ParseActionError> {
        let items: Vec<T> = self.0.by_ref().map(parse).collect::<Result<_, _>>()?;
        if items.is_empty() { self.word(expected).map(|_| items) } else { Ok(items) }
    }

    fn set_config(&mut self) -> Result<SetConfig, ParseActionError> {
        let mut config = SetConfig::new(self.word("NAME")?, []);
        config.members = self.rest("HOST", member_config)?;
        Ok(config)
    }

    fn fail_command(&mut self) -> Result<Option<FailCommand>, ParseActionError> {
        let mut fail = FailCommand::default();
        let mut named = false;
        let list = |text: &str| {
            let items = text.split(',').filter(|item| !item.is_empty());
            items.map(str::to_owned).collect()
        };
        for word in self.0.by_ref() {
            let (key, text) = word.split_once('=').unwrap_or((word, ""));
            match key {
                "off" => return Ok(None),
                "commands" => {
                    fail.commands = list(text);
                    named = true;
                }
                "times" => fail.mode = Mode::Times(value(key, text)?),
                "skip" => fail.mode = Mode::Skip(value(key, text)?),
                "code" => fail.error_code = Some(value(key, text)?),
                "close" => fail.close_connection = true,
                "block" => fail.block = Some(Duration::from_millis(value(key, text)?)),
                "app" => fail.app_name = Some(text.into()),
                "labels" => fail.error_labels = Some(list(text)),
                "reply" => fail.bad_reply = Some(value(key, text)?),
                "writeconcern" => fail.write_concern_error = Some(value(key, text)?),
                _ => return Err(unexpected("a setting of a fail point", word)),
            }
        }
        if named {
            Ok(Some(fail))
        } else {
            Err(ParseActionError("commands=NAME,... is missing".into()))
        }
    }
}

/// Parses a word with `parse`, or returns `None` for `off`.
pub(crate) fn unless_off<T>(
    word: &str,
    parse: impl FnOnce(&str) -> Result<T, ParseActionError>,
) -> Result<Option<T>, ParseActionError> {
    if word == "off" { Ok(None) } else { parse(word).map(Some) }
}

fn period(word: &str) -> Result<Duration, ParseActionError> {
    let period = parse_seconds(word)?;
    if period.is_zero() { Err(unexpected("SECONDS", word)) } else { Ok(period) }
}

fn impostor(name: &str) -> Result<Impostor, ParseActionError> {
    let names = Impostor::ALL.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    value(&format!("{names} or off"), name)
}

/// Parses a member of a set, such as `a:27017;priority=0;hidden=true`.
fn member_config(word: &str) -> Result<MemberConfig, ParseActionError> {
    let mut parts = word.split(';');
    let host = parts.next().unwrap_or_default();
    let mut member = MemberConfig::new(value("HOST", host)?);
    for part in parts {
        match part.split_once('=') {
            Some(("arbiter", text)) => member.arbiter = switch(text)?,
            _ => edit(part)?.apply(&mut member),
        }
    }
    Ok(member)
}

fn edit(word: &str) -> Result<Edit, ParseActionError> {
    let (key, text) = word.split_once('=').unwrap_or((word, ""));
    Ok(match key {
        "priority" => Edit::Priority(value(key, text)?),
        "votes" => Edit::Votes(switch(text)?),
        "hidden" => Edit::Hidden(switch(text)?),
        "delay" => Edit::Delay(parse_seconds(text)?),
        "tags" => Edit::Tags(tags(text)?),
        _ => return Err(unexpected("a setting of a member", word)),
    })
}

pub(crate) fn unexpected(expected: &str, word: &str) -> ParseActionError {
    ParseActionError(format!("`{word}` is not {expected}"))
}

pub(crate) fn value<T: FromStr>(name: &str, text: &str) -> Result<T, ParseActionError> {
    text.parse().map_err(|_| unexpected(name, text))
}

pub(crate) fn parse_seconds(text: &str) -> Result<Duration, ParseActionError> {
    let seconds: f64 = value("SECONDS", text)?;
    Duration::try_from_secs_f64(seconds).map_err(|_| unexpected("SECONDS", text))
}

fn switch(text: &str) -> Result<bool, ParseActionError> {
    match text {
        "on" | "true" | "1" => Ok(true),
        "off" | "false" | "0" => Ok(false),
        _ => Err(unexpected("on or off", text)),
    }
}

fn tags(text: &str) -> Result<Vec<(String, String)>, ParseActionError> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    text.split(',')
        .map(|tag| match tag.split_once(':') {
            Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
            None => Err(unexpected("NAME:VALUE", tag)),
        })
        .collect()
}
