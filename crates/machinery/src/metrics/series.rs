//! Declarations of metrics.

use std::borrow::Cow;
use std::fmt::Debug;

use prometheus_client::encoding::EncodeMetric;
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// A label's value. Most are known at compile time.
pub(super) type Value = Cow<'static, str>;
type Labels<const N: usize> = [(&'static str, Value); N];

/// A metric with labels: one time series per combination of their values.
pub(super) struct Series<const N: usize, M> {
    labels: [&'static str; N],
    family: Family<Labels<N>, M>,
}

/// Declares metrics, one per line: field, kind, name, labels, help. The program's prefix is added to a name that begins
/// with `_`.
macro_rules! declare {
    ($($group:ident { $($field:ident: $kind:ident::$new:ident($($buckets:ident)?)
        $name:literal [$($label:literal),+] $help:literal;)+ })+) => { $(
        pub(super) struct $group { $($field: Series<{ [$($label),+].len() }, $kind>),+ }

        impl $group {
            pub(super) fn register(registry: &mut Registry, prefix: &str) -> $group {
                $group { $($field: {
                    let name = full_name(prefix, $name);
                    Series::register(registry, (name, $help), [$($label),+], || $kind::$new($($buckets)?))
                }),+ }
            }
        }
    )+ };
}
pub(super) use declare;

// === impl Series ===

impl<const N: usize, M> Series<N, M>
where
    M: EncodeMetric + TypedMetric + Clone + Debug + Send + Sync + 'static,
{
    pub(super) fn register(
        registry: &mut Registry,
        (name, help): (String, &str),
        labels: [&'static str; N],
        new: fn() -> M,
    ) -> Series<N, M> {
        let family: Family<Labels<N>, M> = Family::new_with_constructor(new);
        registry.register(name, help, family.clone());
        Series { labels, family }
    }

    /// Returns the series with these values, in the order of the labels, and exports it from now on.
    pub(super) fn of<V: Into<Value>>(&self, values: [V; N]) -> M {
        let mut values = values.map(Into::into);
        let label = |at: usize| (self.labels[at], std::mem::take(&mut values[at]));
        self.family.get_or_create_owned(&std::array::from_fn(label))
    }
}

/// Returns the name of a metric, with the program's prefix if it begins with `_`.
pub(super) fn full_name(prefix: &str, name: &str) -> String {
    if name.starts_with('_') { format!("{prefix}{name}") } else { name.to_owned() }
}
