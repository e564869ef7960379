//! Tests the page in headless Chromium, if it is installed.

mod chromium;

use std::time::{Duration, SystemTime};

use sdam_core::time::Instant;
use sdam_live::{MemberSpec, ReplicaSet, or_skip};

use self::chromium::{Screen, Tab, show};
use super::{Page, Recording, hostile, long, recording};
use crate::{recording::tests::Client, testing::block_on};

const WIDE: Screen = Screen { size: (1280, 1500), is_dark: false };
const NARROW: Screen = Screen { size: (360, 2400), is_dark: true };

/// Shows a page, checks that its script runs without errors, and calls `look`.
fn check_page(page: &str, fragment: &str, screen: Screen, look: impl FnOnce(&mut Tab<'_>)) {
    show(page, fragment, screen, |tab| {
        assert_eq!(tab.data("ready"), "true");
        assert_eq!(tab.data("errors"), "0");
        assert_ne!(tab.data("drawn"), "0");
        let elements = tab.evaluate("document.querySelectorAll('*').length");
        assert!(elements.as_u64().unwrap() <= 3000, "{elements} elements");
        let (requests, messages) = tab.requests_and_messages();
        assert_eq!(requests, [tab.url()]);
        assert!(messages.is_empty(), "{messages:?}");
        look(tab);
    });
}

fn check(recording: &Recording, fragment: &str, look: impl FnOnce(&mut Tab<'_>)) {
    check_page(&Page::of(recording).html, fragment, WIDE, look);
}

#[test]
fn a_failover_is_drawn_and_its_events_are_listed() {
    check(&recording(), "#sel=3", |tab| {
        let dom = tab.dom();
        assert!(dom.contains("class=\"row problem\""));
        assert!(dom.contains("class=\"row selected\""));
        assert!(dom.contains("line 6 of the recording</pre>"), "the selected event");
    });
}

#[test]
fn the_failover_of_a_real_set_is_drawn() {
    let members = [MemberSpec::new(), MemberSpec::new(), MemberSpec::new()];
    let Some(set) = or_skip(ReplicaSet::start(None, &members)).unwrap() else {
        return;
    };
    let recording = block_on(async {
        let uri = format!("{}&heartbeatFrequencyMS=500", set.uri());
        let runtime = sdam::runtime::tokio().unwrap();
        let client = Client::of(&uri, runtime, SystemTime::now(), "here");
        client.wait_for_primary(true).await;
        let old = set.step_down().unwrap();
        let old = set.member(old).host();
        let found = client.topology.wait_for(
            |now| (now.description().primary()?.address.as_str() != old).then_some(()),
            Duration::from_secs(60),
        );
        found.await.unwrap();
        client.stop().await
    });
    let recording = Recording::parse("real.jsonl", &recording).unwrap();
    check(&recording, "", |tab| {
        let dom = tab.dom();
        assert!(dom.contains("Where the time went"));
        assert!(set.members().all(|member| dom.contains(&*member.host())));
    });
}

#[test]
fn pages_without_events_and_with_one_are_drawn() {
    for (count, rows) in [(0, "0"), (2, "1")] {
        check(&long(count), "", |tab| assert_eq!(tab.data("rows"), rows));
    }
}

/// Checks two views: the whole recording, and 1 % of it.
#[test]
fn a_page_of_100_000_events_is_small_and_drawn_with_few_elements() {
    let page = Page::of(&long(100_000)).html;
    assert!(page.len() < 4 << 20, "{}", page.len());
    for fragment in ["", "#t=10000000000&w=300000000"] {
        check_page(&page, fragment, WIDE, |tab| {
            assert!(tab.data("rows").parse::<u32>().unwrap() > 99_000);
            // Print the time per frame without checking it, because it exceeds 16 ms on a machine
            // under load.
            let frame: f64 = tab.data("frame-ms").parse().unwrap();
            println!("a whole redraw takes {frame} ms");
        });
    }
}

#[test]
fn hostile_texts_stay_texts_in_the_browser() {
    check(&hostile(), "#sel=20", |tab| {
        let dom = tab.dom();
        assert!(!dom.contains("<img"));
        assert_eq!(dom.matches("<script").count(), 2);
    });
}

/// Returns the number of pixels on the screen that have each of the colours in `wanted`.
fn colours<const N: usize>(tab: &mut Tab<'_>, wanted: [[u8; 3]; N]) -> [usize; N] {
    let picture = std::io::Cursor::new(tab.picture());
    let mut reader = png::Decoder::new(picture).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    let samples = info.color_type.samples();
    wanted.map(|wanted| {
        let pixels = pixels.chunks_exact(samples);
        pixels.filter(|pixel| pixel[..3] == wanted).count()
    })
}

/// Checks the colours for primary, secondary and unknown servers, with the light and the dark
/// style.
#[test]
fn the_lanes_have_the_colours_of_the_states_on_wide_and_narrow_screens() {
    let page = Page::of(&recording()).html;
    let light = [[0x2f, 0x6f, 0xde], [0x8c, 0xc9, 0xa8], [0xd9, 0x36, 0x36]];
    let dark = [[0x4d, 0x86, 0xe8], [0x3f, 0x8f, 0x6b], [0xe0, 0x52, 0x52]];
    for (screen, wanted) in [(WIDE, light), (NARROW, dark)] {
        check_page(&page, "", screen, |tab| {
            let found = colours(tab, wanted);
            assert!(found.iter().all(|count| *count > 1000), "{screen:?}: {found:?}");
        });
    }
}

/// Checks an outage of 9 s in a recording of 28 hours, in which one pixel covers 80 s.
#[test]
fn the_shortest_outage_is_visible_in_the_whole_span() {
    let mut recording = long(2_000);
    for event in &mut recording.events {
        if event.at > Instant::from_millis(50_000) {
            event.at = event.at + event.at.since(Instant::from_millis(50_000)) * 150;
        }
    }
    assert!(recording.span() > Duration::from_secs(24 * 3600));
    check(&recording, "", |tab| {
        let [lost] = colours(tab, [[0xd9, 0x36, 0x36]]);
        assert!(lost > 100, "{lost}");
    });
}

#[test]
fn the_finding_is_printed() {
    check(&recording(), "", |tab| {
        assert!(tab.print().starts_with(b"%PDF"));
    });
}
