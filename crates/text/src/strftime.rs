//! Dates for templates: the part of strftime that chat templates use, in UTC. Pure.

use std::fmt::Write;

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Formats seconds since 1970. Directives it does not know are copied as they are.
pub fn strftime(format: &str, unix_s: u64) -> String {
    let time = Civil::from_unix(unix_s);
    let mut out = String::with_capacity(format.len() * 2);
    let mut rest = format.chars();
    while let Some(c) = rest.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let directive: String = match rest.next() {
            Some('-') => ['-'].into_iter().chain(rest.next()).collect(),
            other => other.into_iter().collect(),
        };
        if time.write(&directive, &mut out).is_none() {
            out.push('%');
            out.push_str(&directive);
        }
    }
    out
}

/// A moment as people write it.
struct Civil {
    year: u64,
    /// 1 to 12.
    month: u64,
    /// 1 to 31.
    day: u64,
    /// From 0.
    day_of_year: u64,
    /// 0 is Sunday.
    weekday: u64,
    hour: u64,
    minute: u64,
    second: u64,
}

impl Civil {
    /// After Howard Hinnant's `civil_from_days`: years begin in March, so that the leap day is the last of a year.
    fn from_unix(unix_s: u64) -> Civil {
        let (days, seconds) = (unix_s / 86_400, unix_s % 86_400);
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let from_march = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * from_march + 2) / 153;
        let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
        let year = era * 400 + year_of_era + u64::from(month <= 2);
        let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        Civil {
            year,
            month,
            day: from_march - (153 * march_month + 2) / 5 + 1,
            day_of_year: if month <= 2 { from_march - 306 } else { from_march + 59 + u64::from(leap) },
            weekday: (days + 4) % 7,
            hour: seconds / 3_600,
            minute: seconds / 60 % 60,
            second: seconds % 60,
        }
    }

    fn write(&self, directive: &str, out: &mut String) -> Option<()> {
        let day_name = DAYS[self.weekday as usize];
        let month_name = MONTHS[self.month as usize - 1];
        let hour_of_12 = (self.hour + 11) % 12 + 1;
        match directive {
            "Y" => write!(out, "{}", self.year),
            "y" => write!(out, "{:02}", self.year % 100),
            "m" => write!(out, "{:02}", self.month),
            "-m" => write!(out, "{}", self.month),
            "B" => write!(out, "{month_name}"),
            "b" => write!(out, "{}", &month_name[..3]),
            "d" => write!(out, "{:02}", self.day),
            "-d" => write!(out, "{}", self.day),
            "e" => write!(out, "{:2}", self.day),
            "j" => write!(out, "{:03}", self.day_of_year + 1),
            "A" => write!(out, "{day_name}"),
            "a" => write!(out, "{}", &day_name[..3]),
            "H" => write!(out, "{:02}", self.hour),
            "-H" => write!(out, "{}", self.hour),
            "I" => write!(out, "{hour_of_12:02}"),
            "-I" => write!(out, "{hour_of_12}"),
            "p" => write!(out, "{}", if self.hour < 12 { "AM" } else { "PM" }),
            "M" => write!(out, "{:02}", self.minute),
            "S" => write!(out, "{:02}", self.second),
            "%" => write!(out, "%"),
            _ => return None,
        }
        .ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_as_python_writes_them() {
        for (unix_s, expected) in [
            (0, "Thursday Thu 01 January Jan 1970 70 01 001 00:00:00 12 AM 1 1"),
            (951_826_184, "Tuesday Tue 29 February Feb 2000 00 02 060 12:09:44 12 PM 29 2"),
            (1_735_689_599, "Tuesday Tue 31 December Dec 2024 24 12 366 23:59:59 11 PM 31 12"),
            (4_107_542_400, "Monday Mon 01 March Mar 2100 00 03 060 00:00:00 12 AM 1 3"),
        ] {
            assert_eq!(strftime("%A %a %d %B %b %Y %y %m %j %H:%M:%S %I %p %-d %-m", unix_s), expected);
        }
        assert_eq!(strftime("%d%%|%Q|%-Q|%é|%", 0), "01%|%Q|%-Q|%é|%");
    }
}
