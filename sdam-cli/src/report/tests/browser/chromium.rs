//! Headless Chromium, controlled by the DevTools protocol over a pipe.

use std::{
    env, fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        LazyLock, Mutex, PoisonError,
        mpsc::{self, Receiver},
    },
    thread,
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

/// The possible names of the program.
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// The time limit for an answer from the browser, which is long enough for a machine under load.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The shell command that starts the browser. The protocol uses the file descriptors 3 and 4. The
/// browser ends when this process closes them, and the shell then removes the browser's folder.
const SHELL: &str =
    r#"exec 3<&0 4>&1 </dev/null >/dev/null 2>&1; folder=$1; shift; "$@"; rm -rf "$folder""#;

const OPTIONS: [&str; 11] = [
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--hide-scrollbars",
    "about:blank",
];

/// The browser. Tests share it, because starting it takes longer than drawing a page.
static CHROMIUM: LazyLock<Option<Mutex<Chromium>>> =
    LazyLock::new(|| find().map(|program| Mutex::new(Chromium::start(&program))));

/// A running browser.
struct Chromium {
    folder: PathBuf,
    /// The browser's process, for whose end the program does not wait.
    _process: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    last_call: u64,
    /// Events that arrived before the answer to a call.
    events: Vec<Value>,
}

impl Chromium {
    fn start(program: &Path) -> Self {
        let folder = env::temp_dir().join(format!("sdam-browser-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut child = Command::new("sh")
            .args(["-c", SHELL, "sh"])
            .arg(&folder)
            .arg(program)
            .arg(format!("--user-data-dir={}", folder.join("profile").display()))
            .args(OPTIONS)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, messages) = mpsc::channel();
        thread::spawn(move || {
            for message in output.split(0).map_while(Result::ok) {
                // Sending fails if this process is ending and the receiver is gone.
                let _ = sender.send(serde_json::from_slice(&message).unwrap());
            }
        });
        Self { folder, _process: child, input, messages, last_call: 0, events: Vec::new() }
    }

    fn next(&mut self) -> Value {
        self.messages.recv_timeout(TIMEOUT).expect("an answer of Chromium")
    }

    /// Calls a method of the protocol, and returns its result.
    fn call(&mut self, session: Option<&str>, method: &str, parameters: &Value) -> Value {
        self.last_call += 1;
        let mut call = json!({ "id": self.last_call, "method": method, "params": parameters });
        if let Some(session) = session {
            call["sessionId"] = session.into();
        }
        self.input.write_all(format!("{call}\0").as_bytes()).unwrap();
        loop {
            let mut message = self.next();
            if message["id"] == self.last_call {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].take();
            }
            self.events.push(message);
        }
    }
}

/// The display settings of a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Screen {
    pub(super) size: (u32, u32),
    pub(super) is_dark: bool,
}

/// A page in the browser.
pub(super) struct Tab<'c> {
    chromium: &'c mut Chromium,
    session: String,
    url: String,
}

/// Shows the page `html` on `screen`, waits until it is drawn, and calls `look`.
///
/// If there is no browser, the test is skipped. With `SDAM_LIVE_REQUIRED=1`, the test fails instead
/// if Debian's package could be installed.
pub(super) fn show(html: &str, fragment: &str, screen: Screen, look: impl FnOnce(&mut Tab<'_>)) {
    let Some(chromium) = &*CHROMIUM else {
        return skip();
    };
    let mut chromium = chromium.lock().unwrap_or_else(PoisonError::into_inner);
    let file = chromium.folder.join("page.html");
    fs::write(&file, html).unwrap();
    let target = chromium.call(None, "Target.createTarget", &json!({ "url": "about:blank" }));
    let id = &target["targetId"];
    let attach = json!({ "targetId": id, "flatten": true });
    let session = chromium.call(None, "Target.attachToTarget", &attach);
    chromium.events.clear();
    let mut tab = Tab {
        chromium: &mut chromium,
        session: session["sessionId"].as_str().unwrap().to_owned(),
        url: format!("file://{}{fragment}", file.display()),
    };
    tab.load(screen);
    look(&mut tab);
    chromium.call(None, "Target.closeTarget", &json!({ "targetId": id }));
}

impl Tab<'_> {
    fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.chromium.call(Some(&self.session), method, parameters)
    }

    fn load(&mut self, screen: Screen) {
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.call(&format!("{domain}.enable"), &json!({}));
        }
        let (width, height) = screen.size;
        let size = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false,
        });
        self.call("Emulation.setDeviceMetricsOverride", &size);
        let scheme = if screen.is_dark { "dark" } else { "light" };
        let scheme = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.call("Emulation.setEmulatedMedia", &json!({ "features": [scheme] }));
        let page = json!({ "url": self.url });
        self.call("Page.navigate", &page);
        while !self.happened("Page.loadEventFired") {
            let event = self.chromium.next();
            self.chromium.events.push(event);
        }
        // Wait for two frames, after which everything has been drawn.
        self.evaluate(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))",
        );
    }

    fn happened(&self, event: &str) -> bool {
        self.events(event).next().is_some()
    }

    /// Returns the parameters of the events called `name`.
    pub(super) fn events(&self, name: &str) -> impl Iterator<Item = &Value> {
        let events = self.chromium.events.iter();
        let own = events.filter(|event| event["sessionId"] == *self.session);
        own.filter(move |event| event["method"] == name).map(|event| &event["params"])
    }

    /// Evaluates an expression; if it is a promise, waits for its value.
    pub(super) fn evaluate(&mut self, expression: &str) -> Value {
        let expression = json!({
            "expression": expression, "awaitPromise": true, "returnByValue": true,
        });
        let mut result = self.call("Runtime.evaluate", &expression);
        assert!(result["exceptionDetails"].is_null(), "{result}");
        result["result"]["value"].take()
    }

    /// Returns the document after the script has run.
    pub(super) fn dom(&mut self) -> String {
        let dom = self.evaluate("document.documentElement.outerHTML");
        dom.as_str().unwrap().to_owned()
    }

    /// Returns the attribute `data-…` of the `html` element.
    pub(super) fn data(&mut self, name: &str) -> String {
        let value = self.evaluate(&format!("document.documentElement.getAttribute('data-{name}')"));
        value.as_str().unwrap_or("missing").to_owned()
    }

    /// Returns the URL of each request, and each line of the console.
    pub(super) fn requests_and_messages(&self) -> (Vec<&str>, Vec<&Value>) {
        let requests = self.events("Network.requestWillBeSent");
        let requests = requests.map(|event| event["request"]["url"].as_str().unwrap());
        let messages = ["Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"];
        let messages = messages.into_iter().flat_map(|name| self.events(name));
        (requests.collect(), messages.collect())
    }

    /// Returns the URL of the page, without its fragment.
    pub(super) fn url(&self) -> &str {
        self.url.split('#').next().unwrap_or_default()
    }

    /// Returns a screenshot in PNG.
    pub(super) fn picture(&mut self) -> Vec<u8> {
        self.file("Page.captureScreenshot")
    }

    /// Returns the page printed to PDF.
    pub(super) fn print(&mut self) -> Vec<u8> {
        self.file("Page.printToPDF")
    }

    fn file(&mut self, method: &str) -> Vec<u8> {
        let result = self.call(method, &json!({}));
        BASE64_STANDARD.decode(result["data"].as_str().unwrap()).unwrap()
    }
}

fn skip() {
    let required = env::var_os("SDAM_LIVE_REQUIRED").is_some_and(|value| value == "1");
    let package = Command::new("apt-cache").args(["show", "chromium"]).output();
    let installable = package.is_ok_and(|output| output.status.success());
    assert!(!(required && installable), "there is no Chromium: apt-get install chromium");
    eprintln!("SKIPPED a test in a browser: apt-get install chromium");
}

fn find() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let folders: Vec<_> = env::split_paths(&path).collect();
    let places = NAMES.iter().flat_map(|name| folders.iter().map(move |it| it.join(name)));
    places.into_iter().find(|place| place.is_file())
}
