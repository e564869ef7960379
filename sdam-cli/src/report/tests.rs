use std::{
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
    events::{self, Kind},
    page::{self, Page},
    timeline::{BandState, Lane, Row, Timeline},
    verdict::Verdict,
};
use crate::recording::{
    Recording,
    tests::{Client, WALL, failover, pass, simulation, unix},
};

fn recording() -> Recording {
    Recording::parse("in.jsonl", &failover()).unwrap()
}

fn verdict(recording: &Recording) -> Verdict {
    let timeline = Timeline::of(recording);
    Verdict::of(&timeline, &|at| format!("{}", at / 1_000_000_000))
}

#[test]
fn the_verdict_depends_on_where_the_recording_ends() {
    let check = |end: &dyn Fn(&[Event]) -> bool, headline: &str, details: &str| {
        let mut recording = recording();
        let length = (0..recording.events.len()).find(|at| end(&recording.events[..=*at]));
        recording.events.truncate(length.unwrap());
        let verdict = verdict(&recording);
        assert!(verdict.headline.contains(headline), "{}", verdict.headline);
        assert!(verdict.details.contains(details), "{}", verdict.details);
    };
    let has_primary = |event: &Event| match &event.kind {
        EventKind::TopologyDescriptionChanged { new, .. } => Some(new.primary().is_some()),
        _ => None,
    };
    let last = |events: &[Event]| has_primary(events.last().unwrap());
    let was_lost = |events: &[Event]| {
        let mut known = events.iter().filter_map(has_primary).skip_while(|has| !has);
        known.any(|has| !has)
    };
    check(&|_| true, "The recording has no events", "");
    let found = |events: &[Event]| last(events) == Some(true);
    check(&found, "No primary was found in ", "At the end: a:27017: ");
    let failed = |events: &[Event]| {
        matches!(events.last().unwrap().kind, EventKind::ServerHeartbeatFailed { .. })
    };
    check(&failed, "A primary was known at all times, and no server was lost", "");
    let returned = |events: &[Event]| was_lost(events) && last(events) == Some(true);
    let details = "No primary was known when the recording ended";
    check(&returned, ", until the recording ends", details);
}

#[test]
fn the_verdict_of_several_silent_failovers_gives_their_sum() {
    let sim = simulation();
    let recording = sim.block_on(async {
        let client = Client::start(&sim);
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
        let client = Client::of(&uri, sim.runtime(), UNIX_EPOCH + WALL);
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
fn a_silent_server_and_its_next_answer_are_rows() {
    let sim = simulation();
    let recording = sim.block_on(async {
        let client = Client::start(&sim);
        pass(&sim, Duration::from_secs(5)).await;
        sim.apply(&Action::Freeze(MemberId(2).into())).unwrap();
        pass(&sim, Duration::from_secs(15)).await;
        sim.apply(&Action::Thaw(MemberId(2).into())).unwrap();
        pass(&sim, Duration::from_secs(15)).await;
        client.stop().await
    });
    let page = Page::of(&Recording::parse("in.jsonl", &recording).unwrap()).html;
    assert!(page.contains("<td>c:27017<td>silent for "), "{page}");
    assert!(page.contains("<td>c:27017<td>answers again"), "{page}");
}

#[test]
fn the_time_line_ends_before_the_topology_is_closed() {
    let recording = recording();
    let timeline = Timeline::of(&recording);
    assert_eq!(timeline.set.last().unwrap().state, BandState::Writable);
    let mut ends = timeline.lanes.iter().map(|lane| lane.bands.last().unwrap());
    assert!(ends.all(|band| band.state < BandState::Lost));
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
fn text_cannot_become_markup() {
    assert_eq!(
        page::text("<b title=\"x\" id='y'>&\u{1b}[0m"),
        "&lt;b title=&quot;x&quot; id=&#39;y&#39;&gt;&amp;\u{fffd}[0m"
    );
    let page = Page::of(&hostile()).html;
    assert!(page.contains("&lt;img src=x"));
    assert!(!page.contains("<img"));
    assert!(!page.contains("script>"));
}

/// Returns a recording whose error messages try to run a script and to load an image.
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
fn the_page_has_the_finding_a_picture_and_the_events_without_script() {
    let page = Page::of(&recording()).html;
    assert!(!page.contains("<script") && page.contains("default-src 'none'"));
    for part in [
        "<h1>No primary for 9.073 s: writes had to wait</h1>",
        "the client lost the primary a:27017: network error",
        " b:27017 was the new primary.\n",
        "<td>9.058 s<td>00:00:15.000 UTC<td>until another member named the new primary",
        "<path class=\"s5\" d=\"M",
        "<path fill=\"url(#hatch)\" d=\"M",
        "y=\"12\">9.073 s</text>",
        ">00:00:00</text>",
        ">00:00:30</text>",
        "<td>00:00:15.000<td>heartbeat failed<td>a:27017<td>after ",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[test]
fn the_page_gives_the_times_of_day() {
    let page = Page::of(&recording()).html;
    assert!(page.contains("seen by a client, 2024-01-01 00:00:00.000 UTC to "), "{page}");
    let text = String::from_utf8(failover()).unwrap();
    let (start, rest) = text.split_once(r#""epoch":"#).unwrap();
    let (epoch, options) = rest.split_once(r#","options""#).unwrap();
    assert!(epoch.contains(&WALL.as_secs().to_string()));
    let timeless = format!(r#"{start}"epoch":null,"options"{options}"#);
    let timeless = timeless.split("\"time\":\"").map(|piece| match piece.split_once("Z\",") {
        Some((time, rest)) if time.starts_with("20") => rest,
        _ => piece,
    });
    let timeless: String = timeless.collect();
    let timeless = Recording::parse("timeless.jsonl", timeless.as_bytes()).unwrap();
    assert_eq!(timeless.wall(Instant::EPOCH), None);
    assert!(Page::of(&timeless).html.contains("seen by a client, at an unknown time"));
    assert_eq!(recording().wall(Instant::EPOCH), Some(unix(WALL)));
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
fn answered_heartbeats_are_only_counted() {
    let page = Page::of(&long(100_000)).html;
    assert!(page.len() < 100_000, "{}", page.len());
    let (_, note) = page.split_once("Not listed: 99").unwrap();
    assert!(note[3..].starts_with(" answered heartbeats.\n"), "{}", &note[..40]);
    for (count, events) in [(0, "0 events of "), (2, "1 events of ")] {
        let page = Page::of(&long(count)).html;
        assert!(page.contains(events), "{page}");
    }
}

#[test]
fn repeated_events_are_one_row_and_minor_ones_give_way_to_others() {
    let row = |at: u64, kind, lane, text: &str| Row {
        at: at * 1_000_000,
        line: at,
        kind,
        lane: Some(lane),
        text: text.to_owned(),
        time: Some(5_000_000),
    };
    let lane = |address: &str| Lane { address: address.to_owned(), ..Lane::default() };
    let mut timeline = Timeline { lanes: vec![lane("a"), lane("b")], ..Timeline::default() };
    let section =
        |timeline: &Timeline| events::section(timeline, &|at| (at / 1_000_000).to_string());
    timeline.rows = (0..9).map(|at| row(at, Kind::HeartbeatFailed, 0, "refused")).collect();
    timeline.rows.insert(4, row(3, Kind::Server, 1, "changed"));
    let page = section(&timeline);
    assert_eq!(page.matches("<tr").count(), 3, "a heading and two rows: {page}");
    assert!(
        page.contains("<td>a<td>refused <span class=\"more\">9 times until 8</span>"),
        "{page}"
    );
    assert!(page.contains("<td>b<td>changed in 5.0 ms<td>3\n"), "{page}");

    let many = |kind| (0..3000).map(move |at| row(at, kind, 0, &at.to_string()));
    timeline.rows = many(Kind::Selection).chain(many(Kind::Server)).collect();
    let page = section(&timeline);
    let notes = "3000 of the kind \u{201c}selection\u{201d}, 1000 in the middle.";
    assert!(page.contains(notes), "{page}");
    assert!(page.contains("<td>999 in 5.0 ms") && page.contains("<td>2000 in 5.0 ms"));
    assert!(page.contains("events up to 1999 are left out"));
    assert!(!page.contains("<td>1000 in 5.0 ms"));
}

#[test]
fn the_longest_failovers_come_before_the_picture_and_the_others_after_it() {
    let sim = simulation();
    let recorded = sim.block_on(async {
        let client = Client::start(&sim);
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
