use std::{
    fs,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use sdam::sim::{
    MemberId,
    action::{Action, Target},
};
use sdam_core::{
    error::{Error, ErrorKind, Stage},
    event::{ConnectionId, Event, EventKind, Heartbeat},
    ids::ServerId,
    time::Instant,
};
use sdam_events::facts::Bounds;

use super::{
    Arguments, html,
    levels::buckets,
    page::Page,
    row::Kind,
    run,
    timeline::{Band, Lane, Row, State, Timeline},
    verdict::Verdict,
};
use crate::{
    exit::Exit,
    recording::{
        Recording,
        tests::{Client, WALL, failover, pass, simulation},
    },
    testing::capture,
};

mod browser;

fn recording() -> Recording {
    Recording::parse("in.jsonl", &failover()).unwrap()
}

fn verdict(recording: &Recording) -> Verdict {
    let timeline = Timeline::of(recording);
    Verdict::of(&timeline, &|at| format!("{}", at / 1_000_000_000))
}

/// Keeps the events before the first event that satisfies `is_end`.
fn until(mut recording: Recording, is_end: impl FnMut(&Event) -> bool) -> Recording {
    let end = recording.events.iter().position(is_end).unwrap();
    recording.events.truncate(end);
    recording
}

fn has_primary(event: &Event) -> Option<bool> {
    match &event.kind {
        EventKind::TopologyDescriptionChanged { new, .. } => Some(new.primary().is_some()),
        _ => None,
    }
}

#[test]
fn the_verdict_of_a_failover_names_the_time_both_primaries_and_the_cause() {
    let verdict = verdict(&recording());
    let headline = &verdict.headline;
    assert!(headline.starts_with("No primary for 9."), "{headline}");
    let details = verdict.details;
    assert!(details.contains("the client lost the primary a:27017: network error"), "{details}");
    assert!(details.ends_with(" b:27017 was the new primary."), "{details}");
}

#[test]
fn the_verdict_of_a_recording_that_ends_in_the_outage_says_so() {
    let recording =
        until(recording(), |event| matches!(event.kind, EventKind::ServerHeartbeatFailed { .. }));
    let quiet = verdict(&recording);
    assert_eq!(quiet.headline, "A primary was known at all times, and no server was lost");
    let mut losses = 0;
    let recording = until(self::recording(), |event| {
        losses += u32::from(has_primary(event) == Some(false));
        losses > 0 && has_primary(event) == Some(true) && event.at > Instant::from_millis(5000)
    });
    let open = verdict(&recording);
    assert!(open.headline.ends_with(", until the recording ends"), "{}", open.headline);
    assert!(open.details.contains("No primary was known when the recording ended"));
}

#[test]
fn the_verdict_of_a_deployment_without_primary_gives_the_state_of_each_server() {
    let recording = until(recording(), |event| has_primary(event) == Some(true));
    let verdict = verdict(&recording);
    assert!(verdict.headline.starts_with("No primary was found in "));
    assert!(verdict.details.starts_with("At the end: a:27017: "), "{}", verdict.details);
}

#[test]
fn the_verdict_of_an_empty_recording_is_that_there_is_nothing() {
    let mut recording = recording();
    recording.events.clear();
    assert_eq!(verdict(&recording).headline, "The recording has no events");
}

#[test]
fn the_verdict_of_several_silent_failovers_gives_their_sum() {
    let sim = simulation();
    let recording = sim.block_on(async {
        let client = Client::start(&sim, "web-1", Duration::ZERO);
        let first = Target::Member(MemberId(0));
        for step in [Action::Freeze(first), Action::Thaw(first), Action::Freeze(Target::Primary)] {
            pass(&sim, Duration::from_secs(25)).await;
            sim.apply(&step).unwrap();
        }
        pass(&sim, Duration::from_secs(25)).await;
        client.stop().await
    });
    let verdict = verdict(&Recording::parse("in.jsonl", &recording).unwrap());
    let headline = &verdict.headline;
    assert!(headline.starts_with("No primary for 3.337 s to 24.3 s"), "{headline}");
    let end = " s in total, in 2 periods: losses were noticed late";
    assert!(headline.ends_with(end), "{headline}");
    assert!(verdict.details.starts_with("The longest lasted "), "{}", verdict.details);
}

#[test]
fn marks_are_rows_at_their_times() {
    let mut recording = failover();
    let text = String::from_utf8(recording.clone()).unwrap();
    let (start, end) = text.split_at(text.find("\"event\":\"ServerClosed\"").unwrap());
    let cut = start.rfind('\n').unwrap() + 1;
    let at = Recording::parse("in.jsonl", &recording).unwrap().start() + Duration::from_secs(2);
    let note = |text: &str| format!("{{\"note\":\"{text}\",\"at\":{}}}\n", at.as_nanos());
    let [one, two] = [note("mark 1: upgrade"), note("mark 2")];
    recording = format!("{}{one}{}{end}{two}", &start[..cut], &start[cut..]).into_bytes();
    let recording = Recording::parse("in.jsonl", &recording).unwrap();
    assert_eq!(recording.defect, None);
    let timeline = Timeline::of(&recording);
    let marks: Vec<_> = timeline.rows.iter().filter(|row| row.kind == Kind::Mark).collect();
    let texts: Vec<_> = marks.iter().map(|row| &*row.text).collect();
    assert_eq!(texts, ["mark 1: upgrade", "mark 2"]);
    assert!(timeline.rows.is_sorted_by_key(|row| row.at));
}

#[test]
fn a_failover_is_split_without_remainder() {
    let recording = recording();
    let timeline = Timeline::of(&recording);
    let [change] = &*timeline.changes else {
        panic!("{:?}", timeline.changes);
    };
    let splits = change.splits(&timeline);
    let names: Vec<_> = splits.iter().map(|split| split.name).collect();
    assert_eq!(names, ["election", "discovery"], "a server that streams is missed at once");
    let noticed = timeline.offset(change.outage.noticed);
    assert_eq!(splits[0].from, noticed);
    let time = Duration::from_nanos(splits.iter().map(|split| split.time).sum());
    assert_eq!(change.without(&timeline), Bounds { at_least: time, at_most: time });
    assert!(change.cleared.is_some() && change.selected.is_some());
}

#[test]
fn a_client_that_asks_every_30_seconds_may_notice_the_loss_late() {
    let sim = simulation();
    let recording = sim.block_on(async {
        let options = "serverMonitoringMode=poll&heartbeatFrequencyMS=30000";
        let uri = format!("{}&{options}", sim.uri());
        let client = Client::of(&uri, sim.runtime(), UNIX_EPOCH + WALL, "far");
        pass(&sim, Duration::from_secs(10)).await;
        sim.kill(Target::Primary).unwrap();
        pass(&sim, Duration::from_secs(50)).await;
        client.stop().await
    });
    let recording = Recording::parse("in.jsonl", &recording).unwrap();
    let timeline = Timeline::of(&recording);
    let splits = timeline.changes[0].splits(&timeline);
    let names: Vec<_> = splits.iter().map(|split| split.name).collect();
    assert_eq!(names, ["detection", "election"]);
    assert_eq!(splits[0].from + splits[0].time, splits[1].from);
    let headline = verdict(&recording).headline;
    assert!(headline.ends_with(" to 30.0 s: the loss was noticed late"), "{headline}");
}

#[test]
fn the_time_line_ends_before_the_topology_is_closed() {
    let recording = recording();
    let timeline = Timeline::of(&recording);
    assert_eq!(timeline.set.last().unwrap().state, State::Writable);
    let mut ends = timeline.lanes.iter().map(|lane| lane.bands.last().unwrap());
    assert!(ends.all(|band| band.state < State::Lost));
    let lost: Vec<_> = timeline.lanes.iter().filter(|it| it.losses > 0).collect();
    let [lane] = &*lost else { panic!("{lost:?}") };
    assert_eq!((lane.address.as_str(), lane.losses, lane.clears), ("a:27017", 1, 1));
    assert!(lane.failed > 1 && lane.succeeded > 2 && !lane.rtts.is_empty());
    assert_eq!(timeline.gaps, []);
}

#[test]
fn a_pause_of_the_recorder_is_a_gap() {
    let mut recording = recording();
    let middle = recording.events.len() / 2;
    for event in &mut recording.events[middle..] {
        event.at = event.at + Duration::from_secs(100);
    }
    let timeline = Timeline::of(&recording);
    assert_eq!(timeline.gaps.len(), 1);
    let (from, to) = timeline.gaps[0];
    assert!(to - from >= 100_000_000_000);
}

#[test]
fn the_shortest_loss_is_the_worst_state_of_its_bucket_on_every_level() {
    const DAY: u64 = 24 * 3600 * 1_000_000_000;
    let band = |from, state| Band { from, state, name: String::new() };
    let lane = Lane {
        bands: vec![
            band(0, State::Writable),
            band(DAY / 3, State::Lost),
            band(DAY / 3 + 5_000_000, State::Secondary),
        ],
        ..Lane::default()
    };
    let heartbeat = |at, rtt| Row {
        at,
        line: 1,
        kind: Kind::Heartbeat,
        lane: Some(0),
        text: String::new(),
        time: None,
        rtt: Some(rtt),
    };
    let rows: Vec<Row> = (0..=8640).map(|i| heartbeat(i * (DAY / 8640), 1000 + i)).collect();
    let rows: Vec<&Row> = rows.iter().collect();
    for bits in [2, 12, 16] {
        let buckets = buckets(&lane, &rows, DAY, bits);
        assert!(buckets.is_sorted_by(|one, next| one.index < next.index));
        assert!(buckets.len() <= 1 << bits);
        let lost: Vec<_> = buckets.iter().filter(|it| it.worst == Some(State::Lost)).collect();
        let [bucket] = &*lost else { panic!("{lost:?}") };
        assert_eq!(bucket.last, Some(State::Secondary));
        assert_eq!(bucket.index, (1 << bits) / 3);
        assert_eq!(buckets.iter().map(|it| it.heartbeats).sum::<u64>(), 8641);
        let (first, end) = (buckets[0], buckets[buckets.len() - 1]);
        assert_eq!((first.worst, first.fastest), (Some(State::Writable), 1000));
        assert_eq!((end.last, end.slowest), (Some(State::Secondary), 9640));
    }
}

#[test]
fn text_cannot_become_markup() {
    assert_eq!(
        html::text("<b title=\"x\" id='y'>&\u{1b}[0m"),
        "&lt;b title=&quot;x&quot; id=&#39;y&#39;&gt;&amp;\u{fffd}[0m"
    );
    let page = Page::of(&hostile()).html;
    assert!(!page.contains("<img"));
    assert_eq!(page.matches("</script>").count(), 2);
    assert_eq!(page.matches("<script").count(), 2);
}

/// Returns a recording whose error messages try to end the script and to load an image.
fn hostile() -> Recording {
    let mut recording = recording();
    let text = "</script><img src=x onerror=alert(1)> \u{2028} <!-- \u{202e}";
    let error = Error::new(ErrorKind::Network, Stage::Hello, text);
    for event in &mut recording.events {
        if let EventKind::ServerHeartbeatFailed { failure, .. } = &mut event.kind {
            *failure = error.clone();
        }
        if let EventKind::ServerDescriptionChanged { new, .. } = &mut event.kind
            && new.error.is_some()
        {
            Arc::make_mut(new).error = Some(error.clone());
        }
    }
    recording.name = text.to_owned();
    recording
}

#[test]
fn the_same_recording_gives_the_same_page() {
    assert_eq!(Page::of(&recording()).html, Page::of(&recording()).html);
}

#[test]
fn the_finding_and_a_picture_are_there_without_script() {
    let page = Page::of(&recording()).html;
    let (before, _) = page.split_once("<script").unwrap();
    for part in [
        "<h1>No primary for 9.073 s: writes had to wait</h1>",
        "<td>9.058 s<td>22:13:35.000 UTC<td>until another member named the new primary",
        "<path class=\"s5\" d=\"M",
        "<path fill=\"url(#hatch)\" d=\"M",
        ">22:13:20.000 UTC</text>",
    ] {
        assert!(before.contains(part), "{part}");
    }
}

#[test]
fn the_page_gives_the_times_of_day_and_the_place() {
    let page = Page::of(&recording()).html;
    assert!(page.contains("from <b>web-1</b> by a client, 2023-11-14 22:13:20.000 UTC to "));
    let mut old = failover();
    let header = old.iter().position(|byte| *byte == b'\n').unwrap();
    let text = String::from_utf8(old.drain(..header).collect()).unwrap();
    let (epoch, _) = text.split_once("\"vantage\"").unwrap();
    let (_, options) = text.split_once("\"options\"").unwrap();
    assert!(epoch.contains(&WALL.as_secs().to_string()));
    let header = format!(r#"{{"recording":"sdam","version":2,"options"{options}"#);
    // Drop the inputs, because the older version recorded them in another form.
    let events = old.split_inclusive(|byte| *byte == b'\n');
    let events = events.filter(|line| !line.windows(7).any(|part| part == b"\"input\""));
    let lines: Vec<_> = std::iter::once(header.as_bytes()).chain(events).collect();
    let old = Recording::parse("old.jsonl", &lines.concat()).unwrap();
    assert_eq!(old.wall(Instant::EPOCH), None);
    assert!(Page::of(&old).html.contains("seen by a client, at an unknown time"));
    assert_eq!(recording().wall(Instant::EPOCH), Some(UNIX_EPOCH + WALL));
}

/// Returns a recording of `count` events: a failover, followed by heartbeats.
fn long(count: usize) -> Recording {
    let mut recording = recording();
    recording.events.pop();
    let is_close = |event: &Event| event.at == recording.events.last().unwrap().at;
    let end = recording.events.iter().position(is_close).unwrap();
    recording.events.truncate(end.min(count));
    recording.lines.truncate(end.min(count));
    let last = recording.events.last().map(|event| (event.at, event.topology));
    let (start, topology) = last.unwrap_or_default();
    for index in recording.events.len()..count {
        let name = ["a", "b", "c"][index % 3];
        let address = sdam_core::address::ServerAddress::new(name, 27017);
        let connection = ConnectionId { driver: 1, server: None };
        let server = ServerId::from_u64(1 + index as u64 % 3);
        let heartbeat = Heartbeat::new(server, address, connection, true);
        let at = start + Duration::from_millis(333 * index as u64);
        let kind = EventKind::ServerHeartbeatSucceeded {
            heartbeat,
            duration: Duration::from_micros(900_000 + index as u64 % 997),
            reply: Vec::new().into(),
        };
        recording.events.push(Event::new(index as u64, at, topology, kind));
        recording.lines.push(index as u64 + 2);
    }
    recording
}

#[test]
fn a_report_is_written_beside_its_recording_and_replaces_only_reports() {
    let folder = tempfile::tempdir().unwrap();
    let [input, page] = ["in.jsonl", "in.html"].map(|name| folder.path().join(name));
    fs::write(&input, failover()).unwrap();
    let mut arguments = Arguments { recording: input.clone(), ..Arguments::default() };
    let report = |arguments: &Arguments| {
        let (output, remarks, exit) =
            capture(|console| run(arguments, console.output, console.remarks));
        (exit.unwrap(), output, remarks)
    };
    for _ in 0..2 {
        let (exit, output, remarks) = report(&arguments);
        assert_eq!((exit, output.len()), (Exit::SUCCESS, 0), "{remarks}");
        assert!(remarks.contains("in.html: No primary for "), "{remarks}");
    }
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.starts_with("<!DOCTYPE html>"));

    arguments.output = Some(input.clone());
    let (exit, _, remarks) = report(&arguments);
    assert_eq!(exit, Exit::CONFIGURATION);
    assert!(remarks.contains("in.jsonl exists and is not a report"), "{remarks}");
    assert_eq!(fs::read(&input).unwrap(), failover());

    arguments.output = Some("-".into());
    let (exit, output, _) = report(&arguments);
    assert_eq!((exit, output), (Exit::SUCCESS, text));

    (arguments.output, arguments.force) = (Some(input.clone()), true);
    assert_eq!(report(&arguments).0, Exit::SUCCESS);
    arguments.output = None;
    let (exit, _, remarks) = report(&arguments);
    assert_eq!(exit, Exit::CONFIGURATION);
    assert!(remarks.contains("in.jsonl: line 1 of the recording: "), "{remarks}");
}

#[test]
fn the_longest_failovers_come_before_the_picture_and_the_others_after_it() {
    let sim = simulation();
    let recorded = sim.block_on(async {
        let client = Client::start(&sim, "many", Duration::ZERO);
        pass(&sim, Duration::from_secs(5)).await;
        for _ in 0..5 {
            sim.step_down().unwrap();
            pass(&sim, Duration::from_secs(40)).await;
        }
        client.stop().await
    });
    let recording = Recording::parse("in.jsonl", &recorded).unwrap();
    assert_eq!(Timeline::of(&recording).changes.len(), 5);
    let html = Page::of(&recording).html;
    let (before, after) = html.split_once("<h2>What the client saw</h2>").unwrap();
    assert_eq!(before.matches("<h3>").count(), 3);
    assert!(before.contains("2 shorter changes are below the picture"), "{before}");
    let (_, others) = after.split_once("<h2>Shorter changes</h2>").unwrap();
    assert_eq!(others.matches("<h3>").count(), 2);
}
