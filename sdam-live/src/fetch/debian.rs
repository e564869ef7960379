//! Debian 11's OpenSSL 1.1, fetched by the machine's `apt-get` without changing its state.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{cannot, only_entry, run};
use crate::error::Unavailable;

/// Debian 11.
const SUITE: &str = "bullseye";

const REMEDY: &str = "install the libraries libssl.so.1.1 and libcrypto.so.1.1, put a mongod that \
                      does not need them on PATH, or name one in SDAM_MONGOD";

/// The form of an apt source file.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// `deb [options] URI suite component...`, one source a line.
    Lines,
    /// Stanzas of `Field: value`, separated by blank lines.
    Stanzas,
}

/// Downloads and unpacks the package below `staging`; returns the directory of the two libraries.
pub(super) fn libssl(staging: &Path) -> Result<PathBuf, Unavailable> {
    let private = private_sources(Path::new("/etc"), staging)?;
    let packages = staging.join("packages");
    for dir in [
        packages.clone(),
        staging.join("lists/partial"),
        staging.join("cache"),
    ] {
        fs::create_dir_all(&dir).map_err(|error| cannot("create", &dir, &error))?;
    }
    let apt_get = || {
        let mut command = Command::new("apt-get");
        command.arg("--quiet=2").current_dir(&packages);
        for (option, value) in [
            ("Dir::Etc::sourcelist", Path::new("/dev/null")),
            ("Dir::Etc::sourceparts", &private),
            ("Dir::State::Lists", &staging.join("lists")),
            ("Dir::Cache", &staging.join("cache")),
            ("APT::Architectures", Path::new("amd64")),
            ("APT::Sandbox::User", Path::new("")),
            ("Acquire::Languages", Path::new("none")),
        ] {
            command
                .arg("-o")
                .arg(format!("{option}={}", value.display()));
        }
        command
    };
    // A failed source among several does not matter if the package is found.
    let updated = run(apt_get().arg("update"), REMEDY);
    run(apt_get().args(["download", "libssl1.1"]), REMEDY)
        .map_err(|e| updated.err().unwrap_or(e))?;

    let unpacked = staging.join("libssl");
    let package = only_entry(&packages, "deb")?;
    run(
        Command::new("dpkg-deb")
            .arg("--extract")
            .arg(package)
            .arg(&unpacked),
        REMEDY,
    )?;

    let libraries = staging.join("libraries");
    fs::create_dir_all(&libraries).map_err(|error| cannot("create", &libraries, &error))?;
    for name in ["libssl.so.1.1", "libcrypto.so.1.1"] {
        let library = unpacked.join("usr/lib/x86_64-linux-gnu").join(name);
        fs::rename(&library, libraries.join(name))
            .map_err(|error| cannot("unpack", &library, &error))?;
    }
    Ok(libraries)
}

/// Copies the machine's apt sources with its release replaced by Debian 11.
fn private_sources(etc: &Path, staging: &Path) -> Result<PathBuf, Unavailable> {
    let release = fs::read_to_string(etc.join("os-release")).unwrap_or_default();
    let codename = (os_release(&release, "ID") == Some("debian"))
        .then(|| os_release(&release, "VERSION_CODENAME"))
        .flatten()
        .ok_or_else(|| Unavailable::new(format!("this is not a Debian release; {REMEDY}")))?;

    let private = staging.join("sources");
    fs::create_dir_all(&private).map_err(|error| cannot("create", &private, &error))?;
    let mut any = false;
    for path in source_files(&etc.join("apt")) {
        let (Some(name), Some(extension)) = (path.file_name(), path.extension()) else {
            continue;
        };
        let form = if extension == "list" {
            Form::Lines
        } else {
            Form::Stanzas
        };
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        let text = for_debian_11(&text, form, codename);
        any |= !text.is_empty();
        let copy = private.join(name);
        fs::write(&copy, text).map_err(|error| cannot("write", &copy, &error))?;
    }
    if any {
        Ok(private)
    } else {
        Err(Unavailable::new(format!(
            "no apt source has {codename} main; {REMEDY}"
        )))
    }
}

/// Returns `sources.list` and the files of `sources.list.d` that apt reads.
fn source_files(apt: &Path) -> Vec<PathBuf> {
    let parts = fs::read_dir(apt.join("sources.list.d"))
        .into_iter()
        .flatten();
    let parts = parts.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let read = |path: &PathBuf| {
        path.extension()
            .is_some_and(|e| e == "list" || e == "sources")
    };
    let mut files: Vec<_> = [apt.join("sources.list")]
        .into_iter()
        .chain(parts)
        .collect();
    files.retain(read);
    files
}

/// Returns the value of `KEY=value` or `KEY="value"`.
fn os_release<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?;
    Some(value.trim().trim_matches('"'))
}

/// Keeps the sources with suites whose names begin with the release `codename`, and replaces it by
/// Debian 11.
fn for_debian_11(text: &str, form: Form, codename: &str) -> String {
    match form {
        Form::Lines => text
            .lines()
            .filter_map(|line| line_for_debian_11(line, codename))
            .fold(String::new(), |all, line| all + &line + "\n"),
        Form::Stanzas => text
            .split("\n\n")
            .filter_map(|stanza| stanza_for_debian_11(stanza, codename))
            .fold(String::new(), |all, stanza| all + &stanza + "\n"),
    }
}

fn line_for_debian_11(line: &str, codename: &str) -> Option<String> {
    let line = line.split('#').next().unwrap_or_default().trim();
    let rest = line.strip_prefix("deb ")?.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(rest) => rest
            .split_once(']')
            .map(|(options, rest)| (options, rest.trim()))?,
        None => ("", rest),
    };
    let mut words = rest.split_whitespace();
    let (uri, suite) = (words.next()?, words.next()?);
    let suite = suite_for_debian_11(suite, codename)?;
    let options = if options.is_empty() {
        String::new()
    } else {
        format!("[{options}] ")
    };
    words
        .any(|component| component == "main")
        .then(|| format!("deb {options}{uri} {suite} main"))
}

fn stanza_for_debian_11(stanza: &str, codename: &str) -> Option<String> {
    let mut kept = String::new();
    let mut main = false;
    let mut suites = String::new();
    for line in stanza.lines().filter(|line| !line.starts_with('#')) {
        let (field, value) = line.split_once(':').unwrap_or(("", ""));
        if field.eq_ignore_ascii_case("suites") {
            suites = value
                .split_whitespace()
                .filter_map(|suite| suite_for_debian_11(suite, codename))
                .collect::<Vec<_>>()
                .join(" ");
        } else if field.eq_ignore_ascii_case("components") {
            main = value
                .split_whitespace()
                .any(|component| component == "main");
        } else if !line.is_empty() {
            kept += line;
            kept.push('\n');
        }
    }
    (main && !suites.is_empty()).then(|| format!("{kept}Suites: {suites}\nComponents: main\n"))
}

/// Returns `bullseye-security` for `bookworm-security` on bookworm, `None` for other releases.
fn suite_for_debian_11(suite: &str, codename: &str) -> Option<String> {
    let part = suite.strip_prefix(codename)?;
    matches!(part, "" | "-updates" | "-security").then(|| format!("{SUITE}{part}"))
}

#[cfg(test)]
mod tests {
    use super::{Form, for_debian_11, os_release};

    fn check(form: Form, text: &str, expected: &str) {
        assert_eq!(for_debian_11(text, form, "bookworm"), expected, "{text}");
    }

    #[test]
    fn lines_of_this_release_get_the_suite_of_debian_11() {
        check(
            Form::Lines,
            "# deb http://deb.example/debian bookworm main\n\
             deb http://deb.example/bookworm/debian bookworm main contrib # ours\n\
             deb-src http://deb.example/debian bookworm main\n\
             deb [arch=amd64 signed-by=/k.gpg] http://sec.example/ bookworm-security main\n",
            "deb http://deb.example/bookworm/debian bullseye main\n\
             deb [arch=amd64 signed-by=/k.gpg] http://sec.example/ bullseye-security main\n",
        );
    }

    #[test]
    fn lines_of_other_vendors_are_dropped() {
        for line in [
            "deb https://cloud.example/apt cloud-sdk-bookworm main",
            "deb https://containers.example/debian bookworm stable",
            "deb https://sql.example/apt bookworm-pgdg main",
            "deb http://deb.example/debian bookworm-backports main",
            "deb http://deb.example/debian sid main",
            "deb",
        ] {
            check(Form::Lines, line, "");
        }
    }

    #[test]
    fn stanzas_of_this_release_get_the_suites_of_debian_11() {
        check(
            Form::Stanzas,
            "# the archive\nTypes: deb\nURIs: http://deb.example/bookworm\n\
             Suites: bookworm bookworm-updates bookworm-backports\nComponents: main contrib\n\
             Signed-By:\n -----BEGIN\n .\n -----END\n\n\
             Types: deb\nURIs: https://node.example/\nSuites: nodistro\nComponents: main\n\n\
             Types: deb\nURIs: https://tool.example/\nsuites: bookworm\ncomponents: stable\n",
            "Types: deb\nURIs: http://deb.example/bookworm\nSigned-By:\n -----BEGIN\n .\n \
             -----END\nSuites: bullseye bullseye-updates\nComponents: main\n\n",
        );
    }

    #[test]
    fn os_release_values_may_be_quoted() {
        let text = "ID=debian\nVERSION_ID=\"12\"\nVERSION_CODENAME=bookworm\n";
        assert_eq!(os_release(text, "ID"), Some("debian"));
        assert_eq!(os_release(text, "VERSION_ID"), Some("12"));
        assert_eq!(os_release(text, "ID_LIKE"), None);
    }
}
