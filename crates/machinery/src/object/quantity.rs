//! Amounts of resources.

use serde::{Deserialize, Deserializer, Serialize};

use super::InternedStr;

/// An amount as the user wrote it: `500m`, `0.5Gi`, `1e3`. Compare values with [`Quantity::is_same_as`]. (`Eq`
/// compares the text; it exists for interning.)
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Quantity(InternedStr);

/// Smallest digit that Kubernetes keeps (resource.Nano); finer amounts are rounded up.
const NANO_DIGITS: i32 = 9;
/// In a pod, Kubernetes keeps only thousandths.
const NANOS_PER_MILLI: i128 = 1_000_000;
/// Exponent beyond which an amount counts as the largest or smallest.
const MAX_EXPONENT: i32 = 30;

// === impl Quantity ===

impl Quantity {
    /// Returns the amount of this text.
    pub fn new(text: &str) -> Quantity {
        Quantity(InternedStr::new(text))
    }

    /// Returns whether both are the same amount: `1000m` and `1`, `0.5Gi` and `512Mi`; as in the API server, also
    /// `0.0625` and `63m`.
    pub fn is_same_as(&self, other: &Quantity) -> bool {
        self.0 == other.0 || self.millis().is_some_and(|millis| Some(millis) == other.millis())
    }

    /// Returns the amount in units of 10⁻³, rounded up as the API server rounds a container's resources
    /// (k8s.io/kubernetes/pkg/apis/core/v1, SetDefaults_ResourceList). `None` as for `nanos`.
    pub fn millis(&self) -> Option<i128> {
        let nanos = self.nanos()?;
        Some(nanos / NANOS_PER_MILLI + (nanos % NANOS_PER_MILLI).signum())
    }

    /// Returns a form in which equal amounts have equal text, to the last digit: hashes of applied states depend on
    /// it.
    pub fn normalised(&self) -> Quantity {
        match self.nanos() {
            Some(nanos) => Quantity::new(&format!("{nanos}n")),
            None => self.clone(),
        }
    }

    /// Returns the amount in units of 10⁻⁹; `None` if the text is not a quantity (the API server accepts no such
    /// text) or the amount does not fit an `i128`.
    fn nanos(&self) -> Option<i128> {
        let text = self.0.as_str();
        let (negative, text) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let end = text.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, suffix) = text.split_at(end);
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return None;
        }
        let (base, exponent) = scale(suffix)?;
        let mut mantissa: i128 = 0;
        for digit in whole.bytes().chain(fraction.bytes()) {
            mantissa = mantissa.checked_mul(10)?.checked_add(i128::from(digit - b'0'))?;
        }
        // value = mantissa · base^exponent · 10^(9 - fraction digits)
        let decimal = NANO_DIGITS - i32::try_from(fraction.len()).ok()?;
        let (binary, decimal) =
            if base == 2 { (exponent, decimal) } else { (0, decimal + exponent) };
        let value = mantissa.checked_mul(1i128.checked_shl(binary.try_into().ok()?)?)?;
        let value = if decimal >= 0 {
            value.checked_mul(10i128.checked_pow(decimal.try_into().ok()?)?)?
        } else {
            let divisor = 10i128.checked_pow(decimal.unsigned_abs())?;
            value / divisor + i128::from(value % divisor != 0)
        };
        Some(if negative { -value } else { value })
    }
}

/// Returns the base and exponent of a suffix.
fn scale(suffix: &str) -> Option<(i32, i32)> {
    Some(match suffix {
        "n" => (10, -9),
        "u" => (10, -6),
        "m" => (10, -3),
        "" => (10, 0),
        "k" => (10, 3),
        "M" => (10, 6),
        "G" => (10, 9),
        "T" => (10, 12),
        "P" => (10, 15),
        "E" => (10, 18),
        "Ki" => (2, 10),
        "Mi" => (2, 20),
        "Gi" => (2, 30),
        "Ti" => (2, 40),
        "Pi" => (2, 50),
        "Ei" => (2, 60),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            (10, (-MAX_EXPONENT..=MAX_EXPONENT).contains(&exponent).then_some(exponent)?)
        }
    })
}

/// Accepts a string or a number: a custom resource can have either.
impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Quantity, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Text(InternedStr),
            Whole(i64),
        }
        Ok(match Written::deserialize(deserializer)? {
            Written::Text(text) => Quantity(text),
            Written::Whole(number) => Quantity::new(&number.to_string()),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantities_compare_by_value() {
        for (a, b) in [
            ("1000m", "1"),
            ("0.5Gi", "512Mi"),
            ("1e3", "1k"),
            ("1E3", "1000"),
            ("1E", "1e18"),
            (".5", "500m"),
            ("1.", "1"),
            ("+1", "1"),
            ("-0", "0"),
            ("1Ki", "1024"),
            ("1Pi", "1024Ti"),
            ("1Ei", "1024Pi"),
            ("0.1n", "1n"),
            ("128974848", "123Mi"),
        ] {
            assert!(Quantity::new(a).is_same_as(&Quantity::new(b)), "{a} = {b}");
            assert_eq!(Quantity::new(a).normalised(), Quantity::new(b).normalised(), "{a} = {b}");
        }
        for (a, b) in [("1", "1m"), ("1M", "1Mi"), ("1", "-1"), ("1G", "1"), ("x", "y")] {
            assert!(!Quantity::new(a).is_same_as(&Quantity::new(b)), "{a} ≠ {b}");
        }
    }

    /// As the API server rounds them in a pod template (SetDefaults_ResourceList).
    #[test]
    fn amounts_below_a_thousandth_are_compared_rounded_up() {
        for (a, b) in [
            ("0.0625", "63m"),
            ("0.1234Gi", "132499741082m"),
            ("1n", "1m"),
            ("1500u", "2m"),
            ("-1500u", "-2m"),
        ] {
            assert!(Quantity::new(a).is_same_as(&Quantity::new(b)), "{a} = {b}");
        }
        assert!(!Quantity::new("0.0625").is_same_as(&Quantity::new("62m")));
        // The record of what was applied keeps the amount as written.
        assert_ne!(Quantity::new("0.0625").normalised(), Quantity::new("63m").normalised());
    }

    #[test]
    fn a_quantity_decodes_from_a_number_too() {
        assert_eq!(serde_json::from_str::<Quantity>("2").unwrap(), Quantity::new("2"));
        assert_eq!(serde_json::from_str::<Quantity>("\"2\"").unwrap(), Quantity::new("2"));
    }

    proptest! {
        #[test]
        fn no_text_makes_a_quantity_panic(text in "[-+0-9.eEKMGinum]{0,24}|.{0,8}") {
            let quantity = Quantity::new(&text);
            prop_assert!(quantity.is_same_as(&quantity));
            prop_assert!(quantity.normalised().is_same_as(&quantity));
        }

        #[test]
        fn a_thousand_thousandths_equal_one(n in 0i64..=i64::MAX / 1000) {
            let thousandths = Quantity::new(&format!("{}m", n * 1000));
            prop_assert!(thousandths.is_same_as(&Quantity::new(&n.to_string())));
        }
    }
}
