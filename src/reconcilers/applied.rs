//! A record of what was last applied, kept on the child itself.
//!
//! Server-side apply removes a field that is no longer applied, but only at the next apply.
//! Comparing does not reveal a field that the operator stopped setting, so each child carries a
//! hash of everything applied: if the hash differs, the child is applied again.

use serde::Serialize;

/// The annotation, on the child's own metadata and never in a pod template.
pub const APPLIED: &str = "workload-operator.example.com/applied";

/// The annotation that records what admission policies and webhooks made of it: the hash of all
/// values that are not as applied. Beside [`APPLIED`], and there only if there are any. It is
/// patched and never applied, so an apply leaves it as it is.
pub(super) const ADMITTED: &str = "workload-operator.example.com/admitted";

/// The hash of what is to be applied. It is the same in every release that applies the same.
pub(super) fn hash(desired: &impl Serialize) -> String {
    // A map inside a `Value` is sorted by key, so the order of a struct's fields does not matter.
    let canonical = serde_json::to_value(desired).map(|value| value.to_string());
    let canonical = canonical.expect("structs with string keys are representable as JSON");
    format!("{:016x}", fnv1a(canonical.as_bytes()))
}

/// FNV-1a, 64 bit: stable across releases and machines, unlike the standard library's hasher.
/// Constants from <http://www.isthe.com/chongo/tech/comp/fnv/>.
pub(super) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv_1a() {
        // From the reference's test vectors.
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn the_order_of_fields_is_of_no_account() {
        #[derive(Serialize)]
        struct Ab(#[serde(serialize_with = "ab")] ());
        #[derive(Serialize)]
        struct Ba(#[serde(serialize_with = "ba")] ());
        fn ab<S: serde::Serializer>(_: &(), s: S) -> Result<S::Ok, S::Error> {
            s.collect_map([("a", 1), ("b", 2)])
        }
        fn ba<S: serde::Serializer>(_: &(), s: S) -> Result<S::Ok, S::Error> {
            s.collect_map([("b", 2), ("a", 1)])
        }
        assert_eq!(hash(&Ab(())), hash(&Ba(())));
    }
}
