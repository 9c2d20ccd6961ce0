//! A scanner that finds the items of a list as its body arrives, without I/O.
//!
//! A list is `{"kind": …, "metadata": {…}, "items": [{…}, …]}`, with its fields in any order. The scanner tracks the
//! nesting byte by byte. It passes on each item when its last byte arrives, either in place or reassembled from several
//! chunks. The decoder checks the JSON inside the items. All other bytes form the envelope, which is decoded at the
//! end.
//!
//! Tracking the nesting costs about as much as decoding. So an item that is probably complete is first decoded in
//! place, which finds its end.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::error::shape;
use super::{Error, MAX_OBJECT};

/// Receives the items.
pub(super) trait ItemVisitor {
    /// Accepts the item at the start of `rest` if it is complete and can be decoded. Returns its length in bytes.
    fn item(&mut self, rest: &[u8]) -> Option<usize>;

    /// Accepts a complete item.
    fn complete(&mut self, bytes: &[u8]) -> Result<(), Error>;
}

/// The received part of a list's body.
#[derive(Debug, Default)]
pub(super) struct ItemScanner {
    state: State,
    /// The nesting of the current item; used in `Inside` only.
    nest: Nest,
    search: Search,
    envelope: Vec<u8>,
    /// The beginning of an incomplete item.
    begun: Vec<u8>,
    /// The length of the last item. If the chunk has fewer bytes left, the next item is probably incomplete and is not
    /// decoded in place.
    last: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    /// Before the items.
    #[default]
    Before,
    /// Before an item, or the end of `items`.
    Between,
    /// In an item.
    Inside,
    /// After the items.
    After,
}

/// A list without its items.
#[derive(Debug, Deserialize)]
pub(super) struct Envelope {
    #[serde(default)]
    pub(super) kind: Option<String>,
    #[serde(default)]
    pub(super) metadata: Option<ListMeta>,
    /// Must be empty: the scanner has removed all items.
    #[serde(default, rename = "items")]
    _items: Option<[IgnoredAny; 0]>,
}

/// metav1.ListMeta.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListMeta {
    /// Empty for kinds that are not stored, such as metrics.k8s.io.
    #[serde(default)]
    pub(super) resource_version: String,
    #[serde(default)]
    pub(super) r#continue: Option<String>,
}

/// The search for the key `items` of the outermost object.
#[derive(Debug, Default)]
struct Search {
    /// Number of open objects and arrays.
    depth: u64,
    in_string: bool,
    /// After a backslash in a string.
    is_escaped: bool,
    /// The last text directly in the list, if it can be the key.
    key: Vec<u8>,
    is_found: bool,
}

const ITEMS: &[u8] = b"items";
/// Capacity of the buffer for joined items that is kept for reuse, in bytes.
const KEPT: usize = 64 << 10;

// === impl ItemScanner ===

impl ItemScanner {
    /// Processes the next chunk of the body and passes on the completed items.
    ///
    /// # Errors
    /// Errors from `take`; items that are not objects; an item or an envelope larger than [`MAX_OBJECT`].
    pub(super) fn arrived(
        &mut self,
        piece: &[u8],
        take: &mut dyn ItemVisitor,
    ) -> Result<(), Error> {
        let mut at = 0;
        while let Some(&byte) = piece.get(at) {
            let rest = piece.get(at..).unwrap_or_default();
            at += match self.state {
                State::Before => {
                    let found = self.search.find_items(rest);
                    if found.is_some() {
                        self.state = State::Between;
                    }
                    self.outside(rest, found.unwrap_or(rest.len()))?
                }
                State::After => {
                    self.search.find_items(rest);
                    self.outside(rest, rest.len())?
                }
                State::Inside => self.inside(rest, take)?,
                State::Between if byte == b'{' => {
                    self.nest = Nest::default();
                    let taken = if rest.len() >= self.last { take.item(rest) } else { None };
                    match taken {
                        Some(length) => self.last = length,
                        None => self.state = State::Inside,
                    }
                    taken.unwrap_or_default()
                }
                State::Between if byte == b']' => {
                    self.state = State::After;
                    0
                }
                State::Between if byte == b',' || byte.is_ascii_whitespace() => 1,
                State::Between => return Err(not_a_list(rest)),
            };
        }
        Ok(())
    }

    /// Ends the body and returns the envelope.
    ///
    /// # Errors
    /// If the list is incomplete.
    pub(super) fn end(self) -> Result<Vec<u8>, Error> {
        let is_open = self.search.depth > 0 || self.search.in_string;
        if is_open || self.envelope.trim_ascii().is_empty() {
            return Err(Error::Cut("a list"));
        }
        Ok(self.envelope)
    }

    /// Adds the first `length` bytes of `rest` to the envelope.
    fn outside(&mut self, rest: &[u8], length: usize) -> Result<usize, Error> {
        if self.envelope.len() + length > MAX_OBJECT {
            return Err(Error::TooLarge { what: "a list without its items", limit: MAX_OBJECT });
        }
        self.envelope.extend_from_slice(rest.get(..length).unwrap_or_default());
        Ok(length)
    }

    /// Continues an item. Returns how many bytes of `rest` belong to it.
    fn inside(&mut self, rest: &[u8], take: &mut dyn ItemVisitor) -> Result<usize, Error> {
        let end = self.nest.scan(rest);
        let used = end.unwrap_or(rest.len());
        let bytes = rest.get(..used).unwrap_or_default();
        if self.begun.len() + used > MAX_OBJECT {
            return Err(Error::TooLarge { what: "an item of a list", limit: MAX_OBJECT });
        }
        if end.is_none() {
            self.begun.extend_from_slice(bytes);
            return Ok(used);
        }
        self.state = State::Between;
        self.last = self.begun.len() + used;
        if self.begun.is_empty() {
            take.complete(bytes)?;
        } else {
            self.begun.extend_from_slice(bytes);
            let taken = take.complete(&self.begun);
            self.begun.clear();
            self.begun.shrink_to(KEPT);
            taken?;
        }
        Ok(used)
    }
}

// === impl Envelope ===

impl Envelope {
    /// # Errors
    /// If it is not a list.
    pub(super) fn decode(bytes: &[u8]) -> Result<Envelope, Error> {
        if bytes.trim_ascii_start().first() != Some(&b'{') {
            return Err(not_a_list(bytes));
        }
        serde_json::from_slice(bytes).map_err(|_| not_a_list(bytes))
    }
}

// === impl Search ===

impl Search {
    /// Continues through `bytes`. Returns the position after the opening bracket of the items, if reached.
    fn find_items(&mut self, bytes: &[u8]) -> Option<usize> {
        for (at, &byte) in bytes.iter().enumerate() {
            if self.in_string {
                let ends = byte == b'"' && !self.is_escaped;
                self.is_escaped = byte == b'\\' && !self.is_escaped;
                self.in_string = !ends;
                if !ends && self.depth == 1 && self.key.len() <= ITEMS.len() {
                    self.key.push(byte);
                }
                continue;
            }
            match byte {
                b'"' => {
                    self.in_string = true;
                    if self.depth == 1 {
                        self.key.clear();
                    }
                }
                b'[' if self.depth == 1 && self.key == ITEMS && !self.is_found => {
                    (self.depth, self.is_found) = (2, true);
                    return Some(at + 1);
                }
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
        None
    }
}

fn not_a_list(rest: &[u8]) -> Error {
    Error::Decode { why: "this is not a list".to_owned(), excerpt: shape(rest) }
}

/// The position in a JSON value.
#[derive(Debug, Clone, Copy, Default)]
struct Nest {
    /// Number of open objects and arrays.
    depth: u64,
    /// In a string.
    string: bool,
    /// After a backslash in a string.
    escaped: bool,
}

impl Nest {
    /// Continues through `bytes`. Returns the end of the value, if reached: after its closing byte or, for a number or
    /// literal, before the next byte.
    fn scan(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            if self.escaped {
                self.escaped = false;
            } else if self.string {
                let quiet = quote_or_backslash(bytes.get(at..)?)?;
                at += quiet;
                self.escaped = bytes.get(at) == Some(&b'\\');
                self.string = self.escaped;
            } else {
                match byte {
                    b'"' => self.string = true,
                    b'{' | b'[' => self.depth += 1,
                    b'}' | b']' if self.depth > 1 => self.depth -= 1,
                    b'}' | b']' => return Some(at + 1),
                    _ => {}
                }
            }
            at += 1;
        }
        None
    }
}

/// Returns the position of the first quote or backslash.
fn quote_or_backslash(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|&byte| byte == b'"' || byte == b'\\')
}

#[cfg(test)]
mod tests;
