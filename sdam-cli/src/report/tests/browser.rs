//! The page in a browser: headless Chromium, if there is one.

use std::{
    env, fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    path::PathBuf,
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, SystemTime},
};

use sdam_core::time::Instant;

use sdam_live::{MemberSpec, ReplicaSet, or_skip};

use super::{Page, Recording, hostile, long, recording};
use crate::recording::tests::Client;

/// The names of the browser.
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// A page in a folder of its own.
struct Browser {
    program: PathBuf,
    folder: PathBuf,
}

impl Browser {
    /// Finds the browser and writes the page.
    ///
    /// If there is none, the test is skipped; with `SDAM_LIVE_REQUIRED=1` it fails, provided that
    /// Debian's package can be installed.
    fn open(page: &str) -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let Some(program) = find() else {
            let required = env::var_os("SDAM_LIVE_REQUIRED").is_some_and(|value| value == "1");
            let package = Command::new("apt-cache")
                .args(["show", "chromium"])
                .output();
            let installable = package.is_ok_and(|output| output.status.success());
            assert!(
                !(required && installable),
                "there is no Chromium: apt-get install chromium"
            );
            eprintln!("SKIPPED a test in a browser: apt-get install chromium");
            return None;
        };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("sdam-browser-{}-{number}", std::process::id());
        let folder = env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("page.html"), page).unwrap();
        Some(Self { program, folder })
    }

    fn url(&self) -> String {
        format!("file://{}/page.html", self.folder.display())
    }

    /// Runs the browser and returns what it prints.
    fn run(&self, url: &str, options: &[&str]) -> String {
        let mut command = Command::new(&self.program);
        command
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
            ])
            .args([
                "--disable-background-networking",
                "--disable-component-update",
            ])
            .args([
                "--disable-sync",
                "--disable-default-apps",
                "--hide-scrollbars",
            ])
            .arg(format!(
                "--user-data-dir={}",
                self.folder.join("profile").display()
            ))
            .args(options)
            .arg(url)
            .stderr(Stdio::null());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{:?}", output.status);
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the document after the script has run.
    fn dom(&self, fragment: &str) -> String {
        self.run(
            &(self.url() + fragment),
            &["--dump-dom", "--window-size=1280,900"],
        )
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser may still be writing its profile.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn find() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let folders: Vec<_> = env::split_paths(&path).collect();
    let places = NAMES
        .iter()
        .flat_map(|name| folders.iter().map(move |it| it.join(name)));
    places.into_iter().find(|place| place.is_file())
}

/// Returns the value of an attribute of the element `html`.
fn attribute<'d>(dom: &'d str, name: &str) -> &'d str {
    let start = dom
        .find(&format!("data-{name}=\""))
        .map(|at| at + name.len() + 7);
    let rest = &dom[start.unwrap_or_else(|| panic!("no data-{name} in {dom:.300}"))..];
    rest.split('"').next().unwrap_or_default()
}

/// Shows the page of `recording`, and checks that its script has run without an error.
fn check(recording: &Recording, fragment: &str) -> Option<String> {
    let page = Page::of(recording).html;
    let dom = Browser::open(&page)?.dom(fragment);
    assert_eq!(attribute(&dom, "ready"), "true");
    assert_eq!(attribute(&dom, "errors"), "0");
    assert_ne!(attribute(&dom, "drawn"), "0");
    let elements = dom.matches('<').count() - dom.matches("</").count();
    assert!(elements <= 3000, "{elements} elements");
    Some(dom)
}

#[test]
fn a_failover_is_drawn_and_its_events_are_listed() {
    let Some(dom) = check(&recording(), "#sel=3") else {
        return;
    };
    assert!(dom.contains("class=\"row problem\""));
    assert!(dom.contains("class=\"row selected\""));
    assert!(
        dom.contains("line 6 of the recording</pre>"),
        "the selected event"
    );
}

#[test]
fn the_failover_of_a_real_set_is_drawn() {
    let members = [MemberSpec::new(), MemberSpec::new(), MemberSpec::new()];
    let Some(set) = or_skip(ReplicaSet::start(None, &members)).unwrap() else {
        return;
    };
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let recording = tokio.block_on(async {
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
    let Some(dom) = check(&recording, "") else {
        return;
    };
    assert!(dom.contains("Where the time went"));
    assert!(set.members().all(|member| dom.contains(&*member.host())));
}

#[test]
fn pages_without_events_and_with_one_are_drawn() {
    for count in [0, 2] {
        let Some(dom) = check(&long(count), "") else {
            return;
        };
        assert_eq!(attribute(&dom, "rows"), count.saturating_sub(1).to_string());
    }
}

/// Zoomed out, and at 1 % of the span.
#[test]
fn a_page_of_100_000_events_is_drawn_with_few_elements() {
    let recording = long(100_000);
    for fragment in ["", "#t=10000000000&w=300000000"] {
        let Some(dom) = check(&recording, fragment) else {
            return;
        };
        assert!(attribute(&dom, "rows").parse::<u32>().unwrap() > 99_000);
        // It was drawn; how fast is printed, as a loaded machine is slower than the 16 ms of a frame.
        let frame: f64 = attribute(&dom, "frame-ms").parse().unwrap();
        println!("a whole redraw takes {frame} ms");
    }
}

#[test]
fn hostile_texts_stay_texts_in_the_browser() {
    let Some(dom) = check(&hostile(), "#sel=20") else {
        return;
    };
    assert!(!dom.contains("<img"));
    assert_eq!(dom.matches("<script").count(), 2);
}

/// All requests go to a proxy, and it sees only that of the page itself.
#[test]
fn the_page_requests_nothing() {
    let page = Page::of(&recording()).html;
    let Some(browser) = Browser::open(&page) else {
        return;
    };
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = proxy.local_addr().unwrap();
    let requests = Arc::<Mutex<Vec<String>>>::default();
    let seen = Arc::clone(&requests);
    thread::spawn(move || {
        for stream in proxy.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let request = lines.next().unwrap_or_default();
            lines.take_while(|line| !line.is_empty()).for_each(drop);
            let length = page.len();
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{page}"
            );
            seen.lock().unwrap().push(request);
        }
    });
    let server = format!("--proxy-server=http://{address}");
    let dom = browser.run("http://report.invalid/", &["--dump-dom", &server]);
    assert_eq!(attribute(&dom, "ready"), "true");
    let requests = requests.lock().unwrap().clone();
    // Chromium also calls its maker, and opens connections in advance.
    let of_page = |request: &&String| !request.is_empty() && !request.contains("google");
    let requests: Vec<_> = requests.iter().filter(of_page).collect();
    assert_eq!(requests, ["GET http://report.invalid/ HTTP/1.1"]);
}

/// Returns how many pixels of a screenshot have each of these colours.
fn colours<const N: usize>(
    browser: &Browser,
    options: &[&str],
    wanted: [[u8; 3]; N],
) -> [usize; N] {
    let picture = browser.folder.join("page.png");
    let option = format!("--screenshot={}", picture.display());
    browser.run(&browser.url(), &[&[&*option], options].concat());
    let file = BufReader::new(fs::File::open(&picture).unwrap());
    let mut reader = png::Decoder::new(file).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    let samples = info.color_type.samples();
    wanted.map(|wanted| {
        let pixels = pixels.chunks_exact(samples);
        pixels.filter(|pixel| pixel[..3] == wanted).count()
    })
}

/// The colours are those of the style sheet: primary, secondary, unknown; light and dark.
#[test]
fn the_lanes_have_the_colours_of_the_states_on_wide_and_narrow_screens() {
    let Some(browser) = Browser::open(&Page::of(&recording()).html) else {
        return;
    };
    let light = [[0x2f, 0x6f, 0xde], [0x8c, 0xc9, 0xa8], [0xd9, 0x36, 0x36]];
    let dark = [[0x4d, 0x86, 0xe8], [0x3f, 0x8f, 0x6b], [0xe0, 0x52, 0x52]];
    let at_night = "--blink-settings=preferredColorScheme=0";
    for (options, wanted) in [
        (["--window-size=1280,1500", "--no-pings"], light),
        (["--window-size=360,2400", at_night], dark),
    ] {
        let found = colours(&browser, &options, wanted);
        assert!(
            found.iter().all(|count| *count > 1000),
            "{options:?}: {found:?}"
        );
    }
}

/// The outage is 9 s of 28 hours, and a pixel is 80 s.
#[test]
fn the_shortest_outage_is_visible_in_the_whole_span() {
    let mut recording = long(2_000);
    for event in &mut recording.events {
        if event.at > Instant::from_millis(50_000) {
            event.at = event.at + event.at.since(Instant::from_millis(50_000)) * 150;
        }
    }
    assert!(recording.span() > Duration::from_secs(24 * 3600));
    let Some(browser) = Browser::open(&Page::of(&recording).html) else {
        return;
    };
    let options = ["--window-size=1280,1500"];
    let [lost] = colours(&browser, &options, [[0xd9, 0x36, 0x36]]);
    assert!(lost > 100, "{lost}");
}

#[test]
fn the_finding_is_printed() {
    let Some(browser) = Browser::open(&Page::of(&recording()).html) else {
        return;
    };
    let print = browser.folder.join("page.pdf");
    browser.run(
        &browser.url(),
        &[&format!("--print-to-pdf={}", print.display())],
    );
    assert!(fs::read(&print).unwrap().starts_with(b"%PDF"));
}
