//! Formats actions as lines of text that [`FromStr`](std::str::FromStr) parses.

use std::{fmt, time::Duration};

use super::{Action, Edit, FailCommand, HorizonPolicy, Impostor, Mode, Target};
use crate::config::MemberConfig;

impl fmt::Display for Action {
    /// Writes the line described by [`Action::SYNTAX`]. The line cannot be parsed if a name or tag
    /// contains a space or a separator.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StepDown { period } => write!(f, "stepdown {}", seconds(*period)),
            Self::StepUp(target) => write!(f, "stepup {}", Word(*target)),
            Self::ReplSetFreeze(target, period) => {
                write!(f, "replfreeze {} {}", Word(*target), seconds(*period))
            }
            Self::Kill(target) => write!(f, "kill {}", Word(*target)),
            Self::Shutdown(target) => write!(f, "shutdown {}", Word(*target)),
            Self::Restart(target) => write!(f, "restart {}", Word(*target)),
            Self::Freeze(target) => write!(f, "freeze {}", Word(*target)),
            Self::Thaw(target) => write!(f, "thaw {}", Word(*target)),
            Self::Partition(a, b) => {
                f.write_str("partition ")?;
                list(f, a.iter().map(|target| Word(*target)))?;
                f.write_str(" ")?;
                list(f, b.iter().map(|target| Word(*target)))
            }
            Self::Isolate(target) => write!(f, "isolate {}", Word(*target)),
            Self::CutOff(target) => write!(f, "cutoff {}", Word(*target)),
            Self::Heal => f.write_str("heal"),
            Self::SplitBrain => f.write_str("splitbrain"),
            Self::Reconfig(config) => {
                write!(f, "setconfig {}", config.name)?;
                config.members.iter().try_for_each(|member| write_member(f, member))
            }
            Self::Edit(target, edits) => {
                write!(f, "reconfig {}", Word(*target))?;
                edits.iter().try_for_each(|edit| write!(f, " {edit}"))
            }
            Self::Add(member) => write!(f, "add {member}"),
            Self::Remove(target) => write!(f, "remove {}", Word(*target)),
            Self::Maintenance(target, on) => {
                write!(f, "maintenance {} {}", Word(*target), switch(*on))
            }
            Self::Horizon(HorizonPolicy::Close) => f.write_str("horizon close"),
            Self::Horizon(HorizonPolicy::Error) => f.write_str("horizon error"),
            Self::FailPoint(target, None) => write!(f, "failpoint {} off", Word(*target)),
            Self::FailPoint(target, Some(fail)) => {
                write!(f, "failpoint {} ", Word(*target))?;
                write_fail_command(f, fail)
            }
            Self::Exhaust(target, on) => write!(f, "exhaust {} {}", Word(*target), switch(*on)),
            Self::Flood(target, None) => write!(f, "flood {} off", Word(*target)),
            Self::Flood(target, Some(every)) => {
                write!(f, "flood {} {}", Word(*target), seconds(*every))
            }
            Self::Lag(target, lag) => write!(f, "lag {} {}", Word(*target), seconds(*lag)),
            Self::Upgrade(target, version) => write!(f, "upgrade {} {version}", Word(*target)),
            Self::Impostor(target, kind) => {
                let kind = kind.map_or("off", Impostor::as_str);
                write!(f, "impostor {} {kind}", Word(*target))
            }
        }
    }
}

impl fmt::Display for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Priority(priority) => write!(f, "priority={priority}"),
            Self::Votes(votes) => write!(f, "votes={votes}"),
            Self::Hidden(hidden) => write!(f, "hidden={hidden}"),
            Self::Delay(delay) => write!(f, "delay={}", seconds(*delay)),
            Self::Tags(tags) => {
                f.write_str("tags=")?;
                list(f, tags.iter().map(|(name, value)| format!("{name}:{value}")))
            }
        }
    }
}

/// Formats a target as one word in the line of an action. Error messages use the `Display` form of
/// `Target` instead.
pub(crate) struct Word(pub(crate) Target);

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Target::Member(member) => member.fmt(f),
            Target::Primary => f.write_str("primary"),
            Target::Secondary => f.write_str("secondary"),
        }
    }
}

/// Writes the member's address, and the settings that differ from the defaults.
fn write_member(f: &mut fmt::Formatter<'_>, member: &MemberConfig) -> fmt::Result {
    write!(f, " {}", member.address)?;
    let plain = MemberConfig::new(member.address.clone());
    if member.arbiter {
        f.write_str(";arbiter=true")?;
    }
    let tags: Vec<_> =
        member.tags.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    for (differs, edit) in [
        (member.priority.total_cmp(&plain.priority).is_ne(), Edit::Priority(member.priority)),
        (member.votes != plain.votes, Edit::Votes(member.votes)),
        (member.hidden != plain.hidden, Edit::Hidden(member.hidden)),
        (member.delay != plain.delay, Edit::Delay(member.delay)),
        (member.tags != plain.tags, Edit::Tags(tags)),
    ] {
        if differs {
            write!(f, ";{edit}")?;
        }
    }
    Ok(())
}

fn write_fail_command(f: &mut fmt::Formatter<'_>, fail: &FailCommand) -> fmt::Result {
    f.write_str("commands=")?;
    list(f, fail.commands.iter())?;
    match fail.mode {
        Mode::AlwaysOn => {}
        Mode::Times(times) => write!(f, " times={times}")?,
        Mode::Skip(skip) => write!(f, " skip={skip}")?,
    }
    if let Some(code) = fail.error_code {
        write!(f, " code={code}")?;
    }
    if fail.close_connection {
        f.write_str(" close")?;
    }
    if let Some(block) = fail.block {
        write!(f, " block={}", block.as_millis())?;
    }
    if let Some(name) = &fail.app_name {
        write!(f, " app={name}")?;
    }
    if let Some(labels) = &fail.error_labels {
        f.write_str(" labels=")?;
        list(f, labels.iter())?;
    }
    if let Some(code) = fail.write_concern_error {
        write!(f, " writeconcern={code}")?;
    }
    if let Some(reply) = fail.bad_reply {
        write!(f, " reply={}", reply.as_str())?;
    }
    Ok(())
}

fn switch(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn list(f: &mut fmt::Formatter<'_>, items: impl Iterator<Item: fmt::Display>) -> fmt::Result {
    for (index, item) in items.enumerate() {
        let comma = if index == 0 { "" } else { "," };
        write!(f, "{comma}{item}")?;
    }
    Ok(())
}

/// Formats a duration in seconds, without trailing zeros.
pub(crate) fn seconds(duration: Duration) -> String {
    let nanos = duration.subsec_nanos();
    if nanos == 0 {
        return duration.as_secs().to_string();
    }
    let text = format!("{}.{nanos:09}", duration.as_secs());
    text.trim_end_matches('0').to_owned()
}
