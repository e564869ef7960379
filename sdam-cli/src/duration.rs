//! Formats durations for display.

use std::time::Duration;

/// Formats a duration with about three digits, such as `6.214 s`, `12.3 ms` or `2 h 05 min`.
pub(crate) fn short(time: Duration) -> String {
    let seconds = time.as_secs();
    let millis = time.as_secs_f64() * 1000.0;
    match seconds {
        0 if time.is_zero() => "0 s".to_owned(),
        0 if millis < 1.0 => format!("{millis:.2} ms"),
        0 if millis < 100.0 => format!("{millis:.1} ms"),
        0 => format!("{millis:.0} ms"),
        1..10 => format!("{:.3} s", time.as_secs_f64()),
        10..120 => format!("{:.1} s", time.as_secs_f64()),
        120..7200 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        7200.. => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_the_unit_that_suits_them() {
        let check = |micros, expected| {
            assert_eq!(short(Duration::from_micros(micros)), expected);
        };
        check(0, "0 s");
        check(421, "0.42 ms");
        check(12_340, "12.3 ms");
        check(234_500, "234 ms");
        check(6_214_400, "6.214 s");
        check(61_250_000, "61.2 s");
        check(725_000_000, "12 min 05 s");
        check(7_500_000_000, "2 h 05 min");
    }
}
