//! Measurements of two builds of this program in alternating rounds.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::{Result, measure::NAMES};

/// The values of one figure, in order of measurement.
#[derive(Debug, Default)]
struct Figure {
    unit: String,
    published: Vec<f64>,
    overlaid: Vec<f64>,
}

/// Figures by name, in the order of their first output.
#[derive(Debug, Default)]
struct Figures(Vec<(String, Figure)>);

/// Runs `measure` of both programs, and prints a table of the medians and of the ratios.
///
/// # Errors
/// If a program fails or prints anything but figures.
pub fn run(words: &[String]) -> Result<()> {
    let mut words = words.iter();
    let programs = [words.next(), words.next()];
    let [Some(published), Some(overlaid)] = programs else {
        return Err("the paths of both programs are missing".into());
    };
    let (mut rounds, mut options, mut names) = (5, Vec::new(), Vec::new());
    while let Some(word) = words.next() {
        match word.as_str() {
            "--rounds" => rounds = words.next().ok_or("--rounds needs a number")?.parse()?,
            option if option.starts_with('-') => options.push(option),
            name => names.push(name),
        }
    }
    if names.is_empty() {
        names.extend(NAMES);
    }
    let mut figures = Figures::default();
    for round in 0..rounds {
        eprintln!("round {} of {rounds}", round + 1);
        for name in &names {
            // The order alternates, so that neither program always finds the processor cool or
            // idle.
            for turn in [round % 2, (round + 1) % 2] {
                let program = if turn == 0 { published } else { overlaid };
                let text = measure(program, &options, name)?;
                for line in text.lines() {
                    figures.add(line, turn == 0)?;
                }
            }
        }
    }
    figures.print();
    Ok(())
}

fn measure(program: &str, options: &[&str], name: &str) -> Result<String> {
    let output = Command::new(program)
        .arg("measure")
        .args(options)
        .arg(name)
        .stderr(Stdio::inherit())
        .output()?;
    if output.status.success() {
        return Ok(String::from_utf8(output.stdout)?);
    }
    Err(format!("{program} measure {name}: {}", output.status).into())
}

impl Figures {
    fn add(&mut self, line: &str, published: bool) -> Result<()> {
        let parsed: Value = serde_json::from_str(line)?;
        let wrong = || format!("not a figure: {line}");
        let name = parsed["figure"].as_str().ok_or_else(wrong)?;
        let value = parsed["value"].as_f64().ok_or_else(wrong)?;
        let index = self.0.iter().position(|(own, _)| own == name);
        let index = index.unwrap_or_else(|| {
            self.0.push((name.to_owned(), Figure::default()));
            self.0.len() - 1
        });
        let figure = &mut self.0[index].1;
        parsed["unit"].as_str().ok_or_else(wrong)?.clone_into(&mut figure.unit);
        let values = if published { &mut figure.published } else { &mut figure.overlaid };
        values.push(value);
        Ok(())
    }

    /// Prints the medians, and the median, minimum and maximum ratio of adjacent measurements.
    fn print(&self) {
        println!("| figure | unit | published | overlaid | ratio (from to) |");
        println!("| --- | --- | ---: | ---: | ---: |");
        for (name, figure) in &self.0 {
            let pairs = figure.published.iter().zip(&figure.overlaid);
            let ratios = sorted(pairs.map(|(published, overlaid)| overlaid / published));
            let [Some(least), Some(most)] = [ratios.first(), ratios.last()] else {
                continue;
            };
            println!(
                "| {name} | {} | {} | {} | {} ({} to {}) |",
                figure.unit,
                rounded(middle(&sorted(figure.published.iter().copied()))),
                rounded(middle(&sorted(figure.overlaid.iter().copied()))),
                rounded(middle(&ratios)),
                rounded(*least),
                rounded(*most),
            );
        }
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<_> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

fn middle(sorted: &[f64]) -> f64 {
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Formats a number with a sensible number of digits.
fn rounded(value: f64) -> String {
    let digits = match value.abs() {
        100.0.. => 0,
        10.0.. => 1,
        0.1.. => 2,
        _ => 4,
    };
    format!("{value:.digits$}")
}
