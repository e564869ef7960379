//! Finds the atomics, locks, waiters and channels that the code of a crate declares, and its
//! orderings stronger than relaxed.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use regex::Regex;

use crate::Result;
use crate::cargo::{relative, rust_files};

/// Types through which threads share state.
const TYPE: &str = r"\b(?:Atomic\w+|Condvar|Barrier|Notify|Semaphore|Thread)\b|\b(?:Mutex|RwLock|OnceLock|LazyLock|ArcSwap\w*|CountedArc)\s*<";

/// The type of `event-listener`, in files that may use it.
const EVENT: &str = r"^(?:(?:Arc|Box|Option)<)*Event>*,?$";

/// Calls that create a channel.
const CHANNEL: &str = r"\b(?:mpsc|oneshot|watch|broadcast|channel)::(?:\w*channel|(?:un)?bounded)(?:::<.*>)?\(|=\s*(?:un)?bounded\(";

/// Calls that create another item in a local variable.
const LOCAL: &str =
    r"=\s*(?:Arc::new\()?(?:\w+::)*(?:Mutex|RwLock|OnceLock)::(?:new|default|from)\(";

/// Finds the items of files.
pub(super) struct Finder {
    /// An ordering stronger than relaxed.
    strong: Regex,
    types: Regex,
    event: Regex,
    channel: Regex,
    local: Regex,
    /// The beginning of a declaration: its kind, its name and the rest of the line.
    heading: Regex,
    /// A field: its name and type.
    field: Regex,
    /// A variant and its fields.
    variant: Regex,
    /// The variable or field that a value is bound to.
    binding: Regex,
    /// A module that exists only in tests or in models.
    absent: Regex,
    inline_tests: Regex,
    /// A line break within a declaration.
    wrap: Regex,
}

impl Finder {
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            strong: Regex::new(r"\bOrdering::(Acquire|Release|AcqRel|SeqCst)\b")?,
            types: Regex::new(TYPE)?,
            event: Regex::new(EVENT)?,
            channel: Regex::new(CHANNEL)?,
            local: Regex::new(LOCAL)?,
            heading: Regex::new(
                r"^(?:pub(?:\(.*?\))?\s+)?(?:(?:const|async)\s+)*(struct|enum|static|type|fn|impl|trait|mod)\b\s*(\w*)(.*)",
            )?,
            field: Regex::new(r"^(?:pub(?:\(.*?\))?\s+)?(\w+):\s+([^&].*)")?,
            variant: Regex::new(r"^([A-Z]\w*)\((.*)")?,
            binding: Regex::new(r"^(?:let\s+\(?(?:mut\s+)?)?(\w+)[^=]*?[=:]")?,
            absent: Regex::new(
                r"#\[cfg\((?:all\()?(?:test|sdam_loom)\b.*\]\s+(?:pub(?:\(.*?\))?\s+)?mod (\w+);",
            )?,
            inline_tests: Regex::new(r"#\[cfg\((?:all\()?test\b.*\]\s+mod \w+ \{")?,
            wrap: Regex::new(r"([:(<=])\n\s+")?,
        })
    }

    /// Returns the items of the crate in `folder`, each with its file.
    pub(super) fn of_crate(&self, folder: &Path) -> Result<Vec<String>> {
        let (mut files, mut absent) = (Vec::new(), Vec::new());
        for file in rust_files(&folder.join("src"))? {
            let text = fs::read_to_string(&file)?;
            let is_root = file.ends_with("src/lib.rs") || file.ends_with("src/main.rs");
            let below = if is_root { file.with_file_name("") } else { file.with_extension("") };
            absent.extend(self.absent.captures_iter(&text).map(|module| below.join(&module[1])));
            files.push((file, text));
        }
        files.retain(|(file, _)| {
            let module = file.with_extension("");
            !absent.iter().any(|absent| module.starts_with(absent))
        });
        let mut found = Vec::new();
        for (file, text) in files {
            let file = relative(&file);
            found.extend(self.items(&text).into_iter().map(|item| format!("{file} {item}")));
        }
        Ok(found)
    }

    /// Returns the items of a file. A field is `Type.field`, a local variable or a channel
    /// `function.variable`, a strong ordering `function: Ordering`, and everything else has a name
    /// of its own.
    fn items(&self, text: &str) -> BTreeSet<String> {
        let own = self.inline_tests.split(text).next().unwrap_or_default();
        let code: Vec<_> =
            own.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        let code = self.wrap.replace_all(&code.join("\n"), "$1 ").into_owned();
        let has_event = code.contains("event_listener::") || code.contains("crate::sync::");
        let is_shared = |declared: &str| {
            self.types.is_match(declared) || has_event && self.event.is_match(declared)
        };
        let mut found = BTreeSet::new();
        let (mut owner, mut in_type) = (String::new(), false);
        for line in code.lines().map(str::trim) {
            if let Some(heading) = self.heading.captures(line) {
                let (_, [kind, name, rest]) = heading.extract();
                if matches!(kind, "struct" | "static" | "type") && is_shared(rest) {
                    found.insert(name.to_owned());
                }
                if !matches!(kind, "static" | "type") {
                    (owner, in_type) = (name.to_owned(), matches!(kind, "struct" | "enum"));
                }
            } else if in_type {
                let declared = self.field.captures(line).or_else(|| self.variant.captures(line));
                if let Some(declared) = declared.filter(|declared| is_shared(&declared[2])) {
                    found.insert(format!("{owner}.{}", &declared[1]));
                }
            } else if self.channel.is_match(line)
                || line.starts_with("let ") && (self.local.is_match(line) || is_shared(line))
            {
                let variable = self.binding.captures(line);
                let variable = variable.as_ref().map_or("", |variable| &variable[1]);
                found.insert(format!("{owner}.{variable}"));
            }
            let strong = self.strong.captures_iter(line);
            found.extend(strong.map(|ordering| format!("{owner}: {}", &ordering[1])));
        }
        // A local variable that becomes a field of the same name is the same item.
        let is_field = |item: &str| {
            let name = item.split_once('.').filter(|_| item.starts_with(char::is_lowercase));
            name.is_some_and(|(_, name)| {
                let field = format!(".{name}");
                found
                    .iter()
                    .any(|other| other.starts_with(char::is_uppercase) && other.ends_with(&field))
            })
        };
        found.iter().filter(|item| !is_field(item)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Finder;

    #[test]
    fn items_are_found_by_their_types_and_have_the_names_of_their_declarations() {
        let text = "
use std::sync::{Arc, Mutex};
use crate::sync::{
    Event,
    atomic::{AtomicBool, Ordering},
};

/// A Mutex<T>, in a comment.
pub(crate) struct A<T> {
    pub(crate) lock: Arc<Mutex<T>>,
    #[cfg(debug_assertions)]
    holder:
        Mutex<Option<ThreadId>>,
    borrowed: &'static Mutex<T>,
    changed: Arc<Event>,
    events: Vec<Event>,
    plain: MutexGuard<'static, ()>,
}

struct B(AtomicBool);

enum C {
    Tasks(u8),
    Caller(Mutex<u8>),
    Named {
        once: OnceLock<u8>,
    },
}

static D: Mutex<u8> = Mutex::new(1);

type E = RwLock<u8>;

impl B {
    fn new(asked: &Arc<AtomicBool>, event: Event) -> Self {
        let (sender, mut receiver) = mpsc::unbounded();
        let flag = Arc::new(AtomicBool::new(true));
        let lock = Mutex::new(1);
        let other = Arc::<sync::Mutex<u8>>::default();
        flag.swap(false, Ordering::Relaxed) || flag.swap(true, Ordering::AcqRel);
        fence(atomic::Ordering::SeqCst);
        Self {
            lock,
            saved: oneshot::channel::<()>(),
        }
    }
}

#[cfg(test)]
mod tests {
    static F: Mutex<u8> = Mutex::new(1);
}
";
        let expected = [
            "A.changed",
            "A.holder",
            "A.lock",
            "B",
            "C.Caller",
            "C.once",
            "D",
            "E",
            "new.flag",
            "new.other",
            "new.saved",
            "new.sender",
            "new: AcqRel",
            "new: SeqCst",
        ];
        assert_eq!(Vec::from_iter(Finder::new().unwrap().items(text)), expected);
    }
}
