//! A batch's completion window.

/// A month: more is a mistake in the unit.
const LONGEST_MS: i64 = 30 * 24 * 3_600_000;

/// `24h` as OpenAI has it; any other number of seconds, minutes, hours or days up to 30 days, too.
pub fn window_ms(text: &str) -> Option<i64> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let unit = match unit {
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 24 * 3_600_000,
        _ => return None,
    };
    let plain = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let millis = number.parse::<i64>().ok().filter(|_| plain)?.checked_mul(unit)?;
    (1..=LONGEST_MS).contains(&millis).then_some(millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_and_a_unit() {
        for (text, millis) in [("24h", 86_400_000), ("1s", 1_000), ("90m", 5_400_000), ("30d", 2_592_000_000)] {
            assert_eq!(window_ms(text), Some(millis), "{text}");
        }
        for bad in ["", "h", "24", "0h", "-1h", "+1h", "1.5h", "31d", "1w", "9223372036854775807h", "24H", "1é"] {
            assert_eq!(window_ms(bad), None, "{bad}");
        }
    }
}
