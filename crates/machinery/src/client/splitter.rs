//! Finds the items of a list as its body arrives: pure.
//!
//! A list is `{"kind": …, "metadata": {…}, "items": [{…}, …]}`, in any order. The splitter tracks
//! the nesting byte by byte and hands out each item as soon as its last byte has arrived: straight
//! from its piece, or reassembled if it came in several. It does not check the JSON inside the
//! items; the decoder does.
//!
//! Tracking the nesting costs about as much as decoding. So an item that is probably complete in
//! the piece is first offered for decoding in place, and decoding finds its end.

use super::error::shape;
use super::{Error, MAX_OBJECT};

/// A part of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// `kind`, with its quotes.
    Kind,
    /// `metadata`.
    Metadata,
    /// An element of `items`.
    Item,
}

/// Receives what is found.
pub(super) trait ItemVisitor {
    /// An item begins here. If it is complete and fits, takes it and returns its length in bytes.
    fn item(&mut self, rest: &[u8]) -> Option<usize>;

    /// A complete part.
    fn part(&mut self, part: Part, bytes: &[u8]) -> Result<(), Error>;
}

/// The body of a list as far as it has arrived.
#[derive(Debug)]
pub(super) struct Splitter {
    state: State,
    /// The nesting of the current value; used in `Inside` only.
    nest: Nest,
    /// The last key read, as far as it matters.
    key: Vec<u8>,
    /// The beginning of a part whose end has not arrived yet.
    begun: Vec<u8>,
    /// The length of the last item. If fewer bytes are left in the piece, the next item is probably
    /// cut off, so it is not decoded in place.
    last: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the list.
    Start,
    /// Before a key, or the end of the list.
    Key,
    /// In a key; true after a backslash.
    InKey(bool),
    /// Between a key and its value.
    Colon,
    /// Before the value of a key.
    Value,
    /// In a value: a part to hand out, or one to skip.
    Inside(Option<Part>),
    /// Before an item, or the end of `items`.
    Item,
    /// After a value.
    Comma,
    /// After the list.
    End,
}

/// No key that matters is longer.
const LONGEST_KEY: usize = "metadata".len() + 1;
/// Capacity of the buffer for joined parts that is kept for the next one, in bytes.
const KEPT: usize = 64 << 10;

// === impl Splitter ===

impl Splitter {
    pub(super) fn new() -> Splitter {
        Splitter {
            state: State::Start,
            nest: Nest::default(),
            key: Vec::with_capacity(LONGEST_KEY),
            begun: Vec::new(),
            last: 0,
        }
    }

    /// Takes the next piece of the body, and hands out what is now complete.
    ///
    /// # Errors
    /// Errors from `take`; input that is not a list; a part larger than [`MAX_OBJECT`].
    pub(super) fn arrived(
        &mut self,
        piece: &[u8],
        take: &mut dyn ItemVisitor,
    ) -> Result<(), Error> {
        let mut at = 0;
        while let Some(&byte) = piece.get(at) {
            let rest = piece.get(at..).unwrap_or_default();
            match self.state {
                State::Inside(part) => at += self.inside(part, rest, take)?,
                State::Item if byte == b'{' && rest.len() >= self.last => {
                    match take.item(rest) {
                        Some(length) => {
                            self.last = length;
                            at += length;
                        }
                        None => self.state = State::Inside(Some(Part::Item)),
                    }
                    self.nest = Nest::default();
                }
                // The opening byte belongs to the value.
                State::Value | State::Item if !byte.is_ascii_whitespace() => {
                    at += usize::from(self.begin(byte).ok_or_else(|| not_a_list(rest))?);
                }
                _ => {
                    self.between(byte).ok_or_else(|| not_a_list(rest))?;
                    at += 1;
                }
            }
        }
        Ok(())
    }

    /// The body has ended.
    ///
    /// # Errors
    /// If the list has not.
    pub(super) fn end(&self) -> Result<(), Error> {
        match self.state {
            State::End => Ok(()),
            _ => Err(Error::Cut("a list")),
        }
    }

    /// Inside a value. Returns how many bytes of `rest` belong to it.
    fn inside(
        &mut self,
        part: Option<Part>,
        rest: &[u8],
        take: &mut dyn ItemVisitor,
    ) -> Result<usize, Error> {
        let end = self.nest.scan(rest);
        let used = end.unwrap_or(rest.len());
        if let Some(part) = part {
            let bytes = rest.get(..used).unwrap_or_default();
            if self.begun.len() + used > MAX_OBJECT {
                return Err(Error::TooLarge { what: "an item of a list", limit: MAX_OBJECT });
            }
            if part == Part::Item && end.is_some() {
                self.last = self.begun.len() + used;
            }
            match (end, self.begun.is_empty()) {
                (None, _) => self.begun.extend_from_slice(bytes),
                (Some(_), true) => take.part(part, bytes)?,
                (Some(_), false) => {
                    self.begun.extend_from_slice(bytes);
                    let taken = take.part(part, &self.begun);
                    self.begun.clear();
                    self.begun.shrink_to(KEPT);
                    taken?;
                }
            }
        }
        if end.is_some() {
            self.state = if part == Some(Part::Item) { State::Item } else { State::Comma };
        }
        Ok(used)
    }

    /// At the first byte of a value, or between items. Returns whether that byte is used up; `None`
    /// if it cannot be there.
    fn begin(&mut self, byte: u8) -> Option<bool> {
        if self.state == State::Item {
            match byte {
                b',' => return Some(true),
                b']' => {
                    self.state = State::Comma;
                    return Some(true);
                }
                b'{' => self.state = State::Inside(Some(Part::Item)),
                _ => return None,
            }
            self.nest = Nest::default();
            return Some(false);
        }
        self.state = match (&*self.key, byte) {
            (_, b',' | b':' | b'}' | b']') => return None,
            (b"items", b'[') => {
                self.state = State::Item;
                return Some(true);
            }
            // Go writes a list without items like this.
            (b"items", b'n') => State::Inside(None),
            (b"items", _) => return None,
            (b"metadata", b'{') => State::Inside(Some(Part::Metadata)),
            (b"kind", b'"') => State::Inside(Some(Part::Kind)),
            _ => State::Inside(None),
        };
        self.nest = Nest::default();
        Some(false)
    }

    /// At a byte of the list itself; `None` if it cannot be there.
    fn between(&mut self, byte: u8) -> Option<()> {
        self.state = match (self.state, byte) {
            (State::InKey(true), _) => State::InKey(false),
            (State::InKey(false), b'\\') => State::InKey(true),
            (State::InKey(false), b'"') => State::Colon,
            (State::InKey(false), _) => {
                if self.key.len() < LONGEST_KEY {
                    self.key.push(byte);
                }
                State::InKey(false)
            }
            (state, byte) if byte.is_ascii_whitespace() => state,
            (State::Start, b'{') => State::Key,
            (State::Key, b'"') => {
                self.key.clear();
                State::InKey(false)
            }
            (State::Colon, b':') => State::Value,
            (State::Comma, b',') => State::Key,
            (State::Key | State::Comma, b'}') => State::End,
            _ => return None,
        };
        Some(())
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
    /// Continues through `bytes`. Returns where the value ends, if it does: after its closing byte
    /// or, for a number or a word, before what follows it.
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
                if !self.string && self.depth == 0 {
                    return Some(at + 1);
                }
            } else {
                match byte {
                    b'"' => self.string = true,
                    b'{' | b'[' => self.depth += 1,
                    b'}' | b']' if self.depth > 1 => self.depth -= 1,
                    b'}' | b']' => return Some(at + self.depth as usize),
                    b',' | b' ' | b'\t' | b'\r' | b'\n' if self.depth == 0 => return Some(at),
                    _ => {}
                }
            }
            at += 1;
        }
        None
    }
}

/// The first byte that is not plain text in a string.
fn quote_or_backslash(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|&byte| byte == b'"' || byte == b'\\')
}

#[cfg(test)]
mod tests;
