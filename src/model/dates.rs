//! Moments as servers write them into headers: HTTP dates (RFC 9110, all three forms) and RFC 3339.

use crate::core::time::UnixMillis;

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

/// An HTTP date: `Sun, 06 Nov 1994 08:49:37 GMT`, `Sunday, 06-Nov-94 08:49:37 GMT` or `Sun Nov  6 08:49:37 1994`.
pub fn http_date(text: &str) -> Option<UnixMillis> {
    let words: Vec<&str> = text.split([' ', ',', '-']).filter(|word| !word.is_empty()).collect();
    let (day, month, year, time) = match words.as_slice() {
        [_, day, month, year, time, zone] if is_utc(zone) => (day, month, year, time),
        [_, month, day, time, year] => (day, month, year, time),
        _ => return None,
    };
    let name = month.get(..3)?.to_ascii_lowercase();
    let month = MONTHS.iter().position(|own| *own == name)?.checked_add(1)?;
    let year = match (year.len(), number(year)?) {
        // Two digits: the past century but for the last years, in which no server asks to wait.
        (2, short) if short < 70 => short.checked_add(2000)?,
        (2, short) => short.checked_add(1900)?,
        (_, year) => year,
    };
    moment(year, u64::try_from(month).ok()?, number(day)?, time, 0)
}

/// A moment of RFC 3339: `2026-01-27T12:00:30Z`, with a fraction, and with another zone's offset.
pub fn rfc_3339(text: &str) -> Option<UnixMillis> {
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let at = rest.find(['Z', 'z', '+', '-'])?;
    let (time, zone) = rest.split_at(at);
    let offset = if is_utc(zone) {
        0
    } else {
        let (hours, minutes) = zone.get(1..)?.split_once(':')?;
        let minutes = i64::try_from(number(hours)?.checked_mul(60)?.checked_add(number(minutes)?)?).ok()?;
        if zone.starts_with('-') { minutes.checked_neg()? } else { minutes }
    };
    let mut fields = date.splitn(3, '-').map(number);
    let (year, month, day) = (fields.next()??, fields.next()??, fields.next()??);
    moment(year, month, day, time, offset)
}

fn is_utc(zone: &str) -> bool {
    ["GMT", "UTC", "Z"].iter().any(|own| zone.eq_ignore_ascii_case(own))
}

fn number(text: &str) -> Option<u64> {
    text.bytes().all(|digit| digit.is_ascii_digit()).then(|| text.parse().ok())?
}

/// `time` is `hh:mm:ss`, perhaps with a fraction; `offset` the zone's minutes east of UTC.
fn moment(year: u64, month: u64, day: u64, time: &str, offset: i64) -> Option<UnixMillis> {
    let mut fields = time.split(':');
    let (hours, minutes, seconds) = (number(fields.next()?)?, number(fields.next()?)?, fields.next()?);
    let (seconds, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
    let seconds = number(seconds)?;
    let sane = (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !sane || hours > 23 || minutes > 59 || seconds > 60 || fields.next().is_some() {
        return None;
    }
    let ms = number(&format!("{:0<3}", fraction.get(..fraction.len().min(3))?))?;
    let hours = days_since_epoch(year, month, day)?.checked_mul(24)?.checked_add(hours)?;
    let minutes = i64::try_from(hours.checked_mul(60)?.checked_add(minutes)?).ok()?.checked_sub(offset)?;
    let seconds = u64::try_from(minutes).ok()?.checked_mul(60)?.checked_add(seconds)?;
    Some(UnixMillis::new(seconds.checked_mul(1000)?.checked_add(ms)?))
}

/// Of the Gregorian calendar; the year begins in March, so that the leap day is its last.
fn days_since_epoch(year: u64, month: u64, day: u64) -> Option<u64> {
    let (year, month) = match month.checked_sub(3) {
        Some(month) => (year, month),
        None => (year.checked_sub(1)?, month.checked_add(9)?),
    };
    let leaps = (year / 4).checked_sub(year / 100)?.checked_add(year / 400)?;
    let before = month.checked_mul(153)?.checked_add(2)? / 5;
    // Days from 0000-03-01 to 1970-01-01, counted in the same way.
    year.checked_mul(365)?.checked_add(leaps)?.checked_add(before)?.checked_add(day)?.checked_sub(719_469)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_every_form_of_a_date() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Sun, 6 Nov 1994 08:49:37 UTC",
        ] {
            assert_eq!(http_date(text), Some(UnixMillis::new(784_111_777_000)), "{text}");
        }
        for (text, ms) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2024-02-29T23:59:59.5Z", 1_709_251_199_500),
            ("2026-12-01T10:00:00+02:00", 1_796_112_000_000),
            ("2026-12-01T08:00:00-00:30", 1_796_113_800_000),
            ("2026-12-01t08:00:00.123456789z", 1_796_112_000_123),
        ] {
            assert_eq!(rfc_3339(text), Some(UnixMillis::new(ms)), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_no_date() {
        for text in [
            "",
            "soon",
            "12",
            "Sun, 06 Foo 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 25:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "2026-13-01T00:00:00Z",
        ] {
            assert_eq!((http_date(text), rfc_3339(text)), (None, None), "{text}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "[0-9A-Za-z:,.+ ä-]{0,40}") {
            let _ = (http_date(&text), rfc_3339(&text));
        }

        /// Each month of four centuries is as long as its calendar says.
        #[test]
        fn days_are_counted_on(year in 1970..2370u64, month in 1..=12u64) {
            let first = |year: u64, month: u64| rfc_3339(&format!("{year:04}-{month:02}-01T00:00:00Z")).unwrap().get();
            let february = if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) { 29 } else { 28 };
            let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
            let next = if month == 12 { first(year + 1, 1) } else { first(year, month + 1) };
            prop_assert_eq!(next - first(year, month), lengths[usize::try_from(month - 1).unwrap()] * 86_400_000);
        }
    }
}
