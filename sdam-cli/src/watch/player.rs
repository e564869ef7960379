//! Plays recorded events at their recorded intervals, or faster.

use std::{iter::Peekable, str::FromStr, time::Duration, vec};

use sdam_core::{event::Event, time::Instant};
use tokio::time::{self, sleep_until};

/// The speed of playback.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Speed {
    /// The events are played at this multiple of the recorded speed.
    Times(f64),
    /// The events are played without pauses.
    Max,
}

impl FromStr for Speed {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "max" {
            return Ok(Self::Max);
        }
        let times = f64::from_str(text.trim_end_matches(['x', 'X'])).ok();
        times
            .filter(|times| times.is_finite() && *times > 0.0)
            .map(Self::Times)
            .ok_or("it needs a number such as 1, 0.5 or 10, or `max`")
    }
}

/// Plays recorded events.
#[derive(Debug)]
pub(super) struct Player {
    events: Peekable<vec::IntoIter<Event>>,
    speed: Speed,
    /// The times of the first and the last event.
    start: Instant,
    end: Instant,
    /// The time when playback began; `None` before that.
    began: Option<time::Instant>,
}

impl Player {
    pub(super) fn new(events: Vec<Event>, speed: Speed) -> Self {
        let at = |event: Option<&Event>| event.map(|event| event.at).unwrap_or_default();
        Self {
            start: at(events.first()),
            end: at(events.last()),
            events: events.into_iter().peekable(),
            speed,
            began: None,
        }
    }

    /// Waits for the next event and returns it, or `None` after the last one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no event.
    pub(super) async fn next(&mut self) -> Option<Event> {
        let began = *self.began.get_or_insert_with(time::Instant::now);
        let at = self.events.peek()?.at;
        if let Speed::Times(times) = self.speed {
            let after = at.since(self.start).as_secs_f64() / times;
            // If the pause is too long to represent, skip it.
            if let Ok(after) = Duration::try_from_secs_f64(after)
                && let Some(due) = began.checked_add(after)
            {
                sleep_until(due).await;
            }
        }
        self.events.next()
    }
}

#[cfg_attr(not(feature = "tui"), expect(dead_code, reason = "only the full screen uses it"))]
impl Player {
    /// Returns the next event if it is due.
    pub(super) fn try_next(&mut self) -> Option<Event> {
        let now = self.now();
        self.events.next_if(|event| event.at <= now)
    }

    /// Returns whether the last event has been played.
    pub(super) fn is_over(&self) -> bool {
        self.events.len() == 0
    }

    /// Returns the current time on the clock of the recording.
    pub(super) fn now(&self) -> Instant {
        let (began, times) = match (self.began, self.speed) {
            (_, Speed::Max) => return self.end,
            (None, Speed::Times(_)) => return self.start,
            (Some(began), Speed::Times(times)) => (began, times),
        };
        let elapsed = began.elapsed().as_secs_f64() * times;
        let elapsed = Duration::try_from_secs_f64(elapsed).unwrap_or(Duration::MAX);
        (self.start + elapsed).min(self.end)
    }
}

#[cfg(test)]
mod tests {
    use sdam_core::{event::EventKind, ids::ObjectId};

    use super::*;

    fn events(millis: &[u64]) -> Vec<Event> {
        let event = |millis: &u64| {
            let kind = EventKind::TopologyOpening;
            Event::new(0, Instant::from_millis(*millis), ObjectId::default(), kind)
        };
        millis.iter().map(event).collect()
    }

    fn play(millis: &[u64], speed: Speed) -> Vec<(u128, u64)> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let began = time::Instant::now();
            let mut player = Player::new(events(millis), speed);
            let mut times = Vec::new();
            while let Some(event) = player.next().await {
                assert!(player.now() >= event.at);
                let millis = event.at.as_nanos() / 1_000_000;
                times.push((began.elapsed().as_millis(), millis));
            }
            assert_eq!(player.now(), player.end);
            times
        })
    }

    #[test]
    fn events_are_played_at_their_distances_divided_by_the_speed() {
        let recorded = [1000, 1500, 3000];
        let check = |speed, expected: [u128; 3]| {
            let played = play(&recorded, speed);
            let times: Vec<u128> = played.iter().map(|(time, _)| *time).collect();
            assert_eq!(times, expected, "{speed:?}");
        };
        // The timers of tokio have a resolution of 1 ms.
        check(Speed::Times(1.0), [0, 500, 2000]);
        check(Speed::Times(10.0), [0, 50, 200]);
        check(Speed::Times(0.5), [0, 1000, 4000]);
        check(Speed::Max, [0, 0, 0]);
    }

    #[test]
    fn speeds_are_positive_numbers_or_max() {
        let check = |text: &str, expected: Option<Speed>| {
            assert_eq!(text.parse::<Speed>().ok(), expected, "{text}");
        };
        check("10", Some(Speed::Times(10.0)));
        check("0.5x", Some(Speed::Times(0.5)));
        check("max", Some(Speed::Max));
        check("0", None);
        check("-1", None);
        check("inf", None);
        check("fast", None);
    }
}
