use core::{fmt, str::FromStr};

/// A wall-clock time, for people: milliseconds since 1970-01-01 in UTC.
///
/// `{}` prints the date and time in RFC 3339, such as `2026-11-22T22:17:46.123Z`. It may go back
/// when the clock is set, so no decision depends on it.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixTime(u64);

impl UnixTime {
    /// Creates the time `millis` milliseconds after 1970-01-01.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Returns the milliseconds since 1970-01-01.
    pub const fn as_millis(self) -> u64 {
        self.0
    }
}

const DAYS_OF_400_YEARS: u64 = 146_097;
/// The number of days from 0000-03-01 to 1970-01-01.
const DAYS_BEFORE_1970: u64 = 719_468;

/// Returns the year, month and day `days` days after 1970-01-01.
///
/// Years are counted from March, so that the leap day is the last day, and the lengths of the other
/// months follow a linear formula.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + DAYS_BEFORE_1970;
    let (era, day) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (era * 400 + year + next_year, month, day)
}

/// Returns the number of days from 1970-01-01 to a date; `None` if the date is earlier. The inverse
/// of [`date`].
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year.checked_sub(1)?, month + 9)
    };
    let (era, year) = (year / 400, year % 400);
    let day = (153 * month + 2) / 5 + day.checked_sub(1)?;
    let day = era * DAYS_OF_400_YEARS + 365 * year + year / 4 - year / 100 + day;
    day.checked_sub(DAYS_BEFORE_1970)
}

impl fmt::Display for UnixTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, millis) = (self.0 / 1000, self.0 % 1000);
        let (year, month, day) = date(seconds / (24 * 60 * 60));
        let (hours, minutes, seconds) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{millis:03}Z"
        )
    }
}

impl fmt::Debug for UnixTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for UnixTime {
    type Err = MalformedTime;

    /// Parses the format printed by `{}`.
    fn from_str(text: &str) -> Result<Self, MalformedTime> {
        // The years 1970 to 9999 have fixed digit positions.
        let number = |places: core::ops::Range<usize>| {
            let digits = text.get(places)?;
            let is_number = digits.bytes().all(|digit| digit.is_ascii_digit());
            is_number.then(|| digits.parse::<u64>().ok()).flatten()
        };
        let parsed = || {
            let days = days(number(0..4)?, number(5..7)?, number(8..10)?)?;
            let minutes = (days * 24 + number(11..13)?) * 60 + number(14..16)?;
            Some((minutes * 60 + number(17..19)?) * 1000 + number(20..23)?)
        };
        let time = parsed().map(Self);
        // Rejects everything else, from wrong separators to the 31st of February.
        let written = time.filter(|time| Written(text).is(time));
        written.ok_or(MalformedTime)
    }
}

/// A text to compare with the output of a value.
struct Written<'t>(&'t str);

impl Written<'_> {
    fn is(mut self, value: &impl fmt::Display) -> bool {
        fmt::write(&mut self, format_args!("{value}")).is_ok() && self.0.is_empty()
    }
}

impl fmt::Write for Written<'_> {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        self.0 = self.0.strip_prefix(part).ok_or(fmt::Error)?;
        Ok(())
    }
}

/// The error of a text that is not in the format of [`UnixTime`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MalformedTime;

impl fmt::Display for MalformedTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time is written like 2026-11-22T22:17:46.123Z")
    }
}

impl core::error::Error for MalformedTime {}

#[cfg(feature = "serde")]
impl serde::Serialize for UnixTime {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for UnixTime {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <alloc::string::String as serde::Deserialize>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString as _;

    use super::*;

    #[test]
    fn times_are_written_and_parsed_by_rfc_3339() {
        for (seconds, millis, text) in [
            (0, 0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, 999, "2000-02-28T23:59:59.999Z"),
            (951_782_400, 1, "2000-02-29T00:00:00.001Z"),
            (951_868_800, 0, "2000-03-01T00:00:00.000Z"),
            (4_107_542_399, 0, "2100-02-28T23:59:59.000Z"),
            (4_107_542_400, 0, "2100-03-01T00:00:00.000Z"),
            (1_704_067_199, 500, "2023-12-31T23:59:59.500Z"),
            (253_402_300_799, 999, "9999-12-31T23:59:59.999Z"),
        ] {
            let time = UnixTime::from_millis(seconds * 1000 + millis);
            assert_eq!(time.to_string(), text);
            assert_eq!(text.parse(), Ok(time));
        }
    }

    #[test]
    fn every_other_text_is_refused() {
        for text in [
            "",
            "1969-12-31T23:59:59.000Z",
            "2001-02-29T00:00:00.000Z",
            "2000-13-01T00:00:00.000Z",
            "2000-00-10T00:00:00.000Z",
            "2000-01-00T00:00:00.000Z",
            "2000-01-01T24:00:00.000Z",
            "2000-01-01T00:00:00Z",
            "2000-01-01T00:00:00.000",
            "2000-01-01T00:00:00.000Zx",
            "2000-01-01 00:00:00.000Z",
            "+000-01-01T00:00:00.000Z",
            "2000-01-01T00:00:00.0é",
        ] {
            assert_eq!(text.parse::<UnixTime>(), Err(MalformedTime), "{text}");
        }
    }
}
