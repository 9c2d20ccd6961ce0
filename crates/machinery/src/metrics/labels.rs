//! Labels of series.

use std::borrow::Cow;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

/// A label's value; most are known at compile time.
pub(super) type Value = Cow<'static, str>;
/// Names and values, in a fixed order.
pub(super) type Labels<const N: usize> = [(&'static str, Value); N];

pub(super) type Counters<const N: usize> = Family<Labels<N>, Counter>;
pub(super) type Gauges<const N: usize> = Family<Labels<N>, Gauge>;
pub(super) type Histograms<const N: usize> = Family<Labels<N>, Histogram, fn() -> Histogram>;
