//! Tests that the topology machine writes, for any implementation of SDAM.
//!
//! A search takes every action of a topic, such as elections, in every reachable state. A test is a
//! shortest history of a state and one more action, in the format of the official SDAM tests: each
//! phase is one action, with the complete resulting description as its outcome. Tests that are the
//! beginning of another one are left out, so all tests together contain every transition.

mod action;
mod outcome;
mod replies;
mod topics;

use std::{
    collections::{BTreeSet, HashSet},
    fmt,
    io::{self, Write},
};

use sdam_core::{
    machine::{Input, TopologyMachine},
    options::Options,
    server::ServerType,
    time::Instant,
    topology::TopologyType,
};

use self::{action::Cell, topics::Topic};

/// The number of tests that were written, and what they contain.
#[derive(Debug, Default)]
pub struct Written {
    /// The number of tests.
    pub paths: usize,
    /// The number of different transitions. Each is in at least one test.
    pub transitions: usize,
    cells: BTreeSet<Cell>,
}

/// The number of cells of the SDAM table "TopologyType", and those of TopologyType Single. A load
/// balancer is not checked, and no check results in one or in a possible primary.
const CELLS: usize = (TopologyType::ALL.len() - 1) * (ServerType::ALL.len() - 2);

impl Written {
    /// Returns whether the tests reach every cell of the SDAM table.
    pub fn is_complete(&self) -> bool {
        self.cells.len() == CELLS
    }
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { paths, transitions, cells } = self;
        write!(f, "{paths} paths, {transitions} transitions, {} of {CELLS} cells", cells.len())
    }
}

/// Searches all topics and writes one test in each line.
///
/// # Errors
///
/// Returns an error if `file` cannot be written.
pub fn write(file: &mut impl Write) -> io::Result<Written> {
    let mut written = Written::default();
    for topic in topics::all() {
        Search::new(&topic)?.run(file, &mut written)?;
    }
    file.flush()?;
    Ok(written)
}

/// A state, and the last phase of the shortest history that leads to it.
struct State {
    machine: TopologyMachine,
    parent: usize,
    phase: String,
}

struct Search<'t> {
    topic: &'t Topic,
    states: Vec<State>,
    known: HashSet<String>,
}

impl<'t> Search<'t> {
    fn new(topic: &'t Topic) -> io::Result<Self> {
        let options = Options::parse(topic.uri).map_err(io::Error::other)?;
        let mut machine = TopologyMachine::new(&options);
        drop(machine.handle(Instant::EPOCH, Input::Open));
        let known = HashSet::from([topic.key(&machine)]);
        let start = State { machine, parent: 0, phase: String::new() };
        Ok(Self { topic, states: vec![start], known })
    }

    fn run(&mut self, file: &mut impl Write, written: &mut Written) -> io::Result<()> {
        let first = written.paths;
        let mut index = 0;
        while index < self.states.len() {
            let mut is_last = true;
            for action in &self.topic.actions {
                let before = &self.states[index].machine;
                let mut machine = before.clone();
                let Some(phase) = action.take(&mut machine) else {
                    continue;
                };
                is_last = false;
                written.transitions += 1;
                written.cells.extend(action.cell(before));
                if self.known.insert(self.topic.key(&machine)) {
                    self.states.push(State { machine, parent: index, phase });
                } else {
                    self.write(file, index, &phase, written.paths - first)?;
                    written.paths += 1;
                }
            }
            if is_last {
                let State { parent, phase, .. } = &self.states[index];
                self.write(file, *parent, phase, written.paths - first)?;
                written.paths += 1;
            }
            index += 1;
        }
        Ok(())
    }

    /// Writes a test: the shortest history of a state, then one more phase.
    fn write(
        &self,
        file: &mut impl Write,
        mut state: usize,
        last: &str,
        number: usize,
    ) -> io::Result<()> {
        let mut phases = vec![last];
        while state > 0 {
            phases.push(&self.states[state].phase);
            state = self.states[state].parent;
        }
        phases.reverse();
        let Topic { name, uri, .. } = self.topic;
        let phases = phases.join(",");
        writeln!(file, r#"{{"description":"{name} {number}","uri":"{uri}","phases":[{phases}]}}"#)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use serde_json::Value;

    use super::{Search, Written, topics};

    #[test]
    fn tests_contain_every_transition_and_none_is_the_beginning_of_another() {
        for topic in topics::all() {
            if !topic.name.contains("direct") {
                continue;
            }
            let (mut file, mut written) = (Vec::new(), Written::default());
            Search::new(&topic).unwrap().run(&mut file, &mut written).unwrap();
            let tests = String::from_utf8(file).unwrap();
            let tests: Vec<Value> =
                tests.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let (mut histories, mut beginnings) = (HashSet::new(), HashSet::new());
            for test in &tests {
                let phases = test["phases"].as_array().unwrap();
                for end in 1..phases.len() {
                    beginnings.insert(format!("{:?}", &phases[..end]));
                }
                assert!(histories.insert(format!("{phases:?}")), "{test}");
            }
            assert!(beginnings.is_disjoint(&histories), "{}", topic.name);
            assert_eq!(histories.len(), written.paths, "{}", topic.name);
            // A history and one more action are one transition.
            assert_eq!(histories.len() + beginnings.len(), written.transitions, "{}", topic.name);
        }
    }
}
