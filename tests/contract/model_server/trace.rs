//! The results of a script, without the values that a server chooses itself.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use serde_json::{Value, json};

use super::side::FUTURE;
use super::stream::{Frames, Stream};
use super::{NAMESPACES, absent};

/// One request and its result.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) asked: String,
    pub(super) code: u16,
    pub(super) body: Value,
    namespace: Option<&'static str>,
    /// The name of the last object that the watch shows.
    last: &'static str,
    stream: Option<Stream>,
    frames: Frames,
}

impl Entry {
    pub(super) fn answer(asked: String, code: u16, body: Value) -> Entry {
        let frames = Frames::default();
        Entry { asked, code, body, namespace: None, last: "", stream: None, frames }
    }

    pub(super) fn watch(
        asked: String,
        namespace: Option<&'static str>,
        last: &'static str,
        stream: Stream,
    ) -> Entry {
        let (stream, frames) = (Some(stream), Frames::default());
        Entry { asked, code: 200, body: Value::Null, namespace, last, stream, frames }
    }

    /// Returns whether the server reports that it is behind.
    pub(super) fn is_too_large(&self) -> bool {
        let first = self.stream.as_ref().and_then(|stream| stream.now().all.first().cloned());
        self.code == 504 || first.is_some_and(|frame| frame["object"]["code"] == 504)
    }

    /// Waits until the watch has shown the last fence that it can see.
    pub(super) async fn finish(&mut self, max_wait: Duration) {
        let Some(stream) = self.stream.take() else { return };
        if self.asked.contains(FUTURE) {
            // Nothing relevant follows.
            self.frames = stream.now();
            return;
        }
        let (last, name) = (self.namespace.unwrap_or(NAMESPACES[1]), self.last);
        let fence = |frame: &Value| {
            let meta = &frame["object"]["metadata"];
            meta["name"] == name && meta["namespace"] == last
        };
        self.frames = stream.until(max_wait, fence).await;
        if let Some(end) = self.frames.all.iter().position(fence) {
            self.frames.all.truncate(end + 1);
        }
    }

    /// Every object that it shows.
    fn objects(&self) -> impl Iterator<Item = &Value> {
        let frames = self.frames.all.iter().map(|frame| &frame["object"]);
        let items = self.body["items"].as_array().into_iter().flatten();
        frames.chain(items).chain([&self.body]).filter(|object| is_object(object))
    }
}

fn is_object(value: &Value) -> bool {
    value["metadata"]["uid"].is_string()
}

/// Returns the first difference between the two.
pub(super) fn first_difference(real: &[Entry], model: &[Entry]) -> Option<String> {
    let mut words = (canonical(real), canonical(model));
    for (at, entry) in real.iter().enumerate() {
        // A busy API server can end a watch regularly at any time.
        if entry.frames.ended && entry.frames.all.last().is_none_or(|last| last["type"] != "ERROR")
        {
            let shown = words.0[at]["frames"].as_array().map_or(0, Vec::len);
            let all = words.1[at]["frames"].as_array_mut().expect("frames");
            all.truncate(shown);
            words.1[at]["ended"] = json!(true);
        }
    }
    // A response shows the cause of later frames in earlier watches.
    let responses = |at: &usize| words.0[*at]["body"] != words.1[*at]["body"];
    let at = (0..real.len()).find(responses);
    let at = at.or_else(|| (0..real.len()).find(|&at| words.0[at] != words.1[at]))?;
    let history: String = real[..at].iter().map(|entry| format!("{}\n", entry.asked)).collect();
    let raw = |entry: &Entry| format!("{} {}\n{}", entry.code, entry.body, shown(&entry.frames));
    Some(format!(
        "after\n{history}came\n{}\nwhich is {:#}\nand by the model\n{}\nwhich is {:#}\n\
         in full: {}\nand by the model: {}",
        real[at].asked,
        words.0[at],
        model[at].asked,
        words.1[at],
        raw(&real[at]),
        raw(&model[at]),
    ))
}

fn shown(frames: &Frames) -> String {
    frames.all.iter().map(|frame| format!("{frame}\n")).collect()
}

/// All entries, with versions as positions in the history of the objects, and UIDs numbered.
fn canonical(entries: &[Entry]) -> Vec<Value> {
    let versions: BTreeSet<u64> = entries.iter().flat_map(Entry::objects).map(version).collect();
    let mut words = Canonical { versions, uids: HashMap::new() };
    entries.iter().map(|entry| words.entry(entry)).collect()
}

fn version(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    text.parse().unwrap_or_else(|_| panic!("no version: {object}"))
}

struct Canonical {
    versions: BTreeSet<u64>,
    uids: HashMap<String, usize>,
}

impl Canonical {
    fn entry(&mut self, entry: &Entry) -> Value {
        let frames: Vec<Value> =
            entry.frames.all.iter().filter_map(|frame| self.frame(frame)).collect();
        self.bookmarks(&entry.frames);
        let body = if absent(&entry.body) { Value::Null } else { self.body(&entry.body) };
        json!({
            "code": entry.code, "body": body, "frames": frames, "ended": entry.frames.ended,
        })
    }

    fn body(&mut self, body: &Value) -> Value {
        if body["kind"] == "Status" {
            return self.status(body);
        }
        let Some(items) = body["items"].as_array() else { return self.object(body) };
        let items: Vec<Value> = items.iter().map(|item| self.object(item)).collect();
        let meta = &body["metadata"];
        let more = meta["continue"].as_str().is_some_and(|token| !token.is_empty());
        json!({
            "items": items, "at": self.place(version(body)),
            "more": more, "remaining": meta["remainingItemCount"],
        })
    }

    /// Returns the number of versions of objects that a version includes.
    fn place(&self, version: u64) -> usize {
        self.versions.range(..=version).count()
    }

    fn object(&mut self, object: &Value) -> Value {
        let mut object = object.clone();
        let Some(meta) = object["metadata"].as_object_mut() else { return object };
        meta.remove("creationTimestamp");
        if let Some(entries) = meta.get_mut("managedFields").and_then(Value::as_array_mut) {
            for entry in entries.iter_mut() {
                entry["time"].take();
            }
            // The order depends on the seconds in which they were written.
            entries.sort_by_key(ToString::to_string);
        }
        let known = self.uids.len();
        if let Some(uid) = meta.get("uid").and_then(Value::as_str).map(str::to_owned) {
            meta.insert("uid".into(), json!(*self.uids.entry(uid).or_insert(known)));
        }
        if meta.contains_key("deletionTimestamp") {
            meta.insert("deletionTimestamp".into(), json!("some time"));
        }
        let number = meta.get("resourceVersion").and_then(Value::as_str);
        let number = number.and_then(|number| number.parse().ok()).unwrap_or(0);
        meta.insert("resourceVersion".into(), json!(self.place(number)));
        object
    }

    fn status(&mut self, status: &Value) -> Value {
        let details = &status["details"];
        let uid = details["uid"].as_str().map(|uid| {
            let known = self.uids.len();
            *self.uids.entry(uid.to_owned()).or_insert(known)
        });
        // Invalid requests are compared only by that. Versions that are too new are also distinguished from a
        // timeout.
        let causes = details["causes"].as_array().into_iter().flatten();
        let too_large =
            causes.map(|cause| &cause["reason"]).any(|why| why == "ResourceVersionTooLarge");
        let causes = details["causes"].as_array().into_iter().flatten();
        let of_fields = ["FieldManagerConflict", "FieldValue"];
        let is_of_field = |cause: &&Value| {
            let reason = cause["reason"].as_str().unwrap_or_default();
            of_fields.iter().any(|of| reason.starts_with(of))
                && cause["field"]
                    .as_str()
                    .is_some_and(|it| it.contains("strict") || it.contains("spec"))
        };
        let fields = causes.filter(is_of_field);
        let fields: BTreeSet<String> =
            fields.map(|cause| format!("{} {}", cause["reason"], cause["field"])).collect();
        json!({
            "fields": fields, "status": status["status"], "code": status["code"], "reason": status["reason"],
            "uid": uid, "too large": too_large, "retry": details["retryAfterSeconds"],
            "token": status["metadata"]["continue"].is_string(),
        })
    }

    /// A frame; `None` if it is a periodic bookmark.
    fn frame(&mut self, frame: &Value) -> Option<Value> {
        let (verb, object) = (&frame["type"], &frame["object"]);
        Some(match verb.as_str() {
            Some("ERROR") => json!([verb, self.status(object)]),
            Some("BOOKMARK") => {
                let annotations = object["metadata"].get("annotations")?;
                json!([verb, self.place(version(object)), annotations])
            }
            _ => json!([verb, self.object(object)]),
        })
    }

    /// Checks that a bookmark is not older than the frames before it, and older than the frames after it.
    fn bookmarks(&self, frames: &Frames) {
        let mut newest = 0;
        let mut initial = frames.all.first().is_some_and(|frame| frame["type"] == "ADDED");
        for frame in frames.all.iter().filter(|frame| frame["type"] != "ERROR") {
            let (at, bookmark) = (version(&frame["object"]), frame["type"] == "BOOKMARK");
            initial &= frame["type"] == "ADDED";
            assert!(initial || at > newest || bookmark && at >= newest, "{frame} after {newest}");
            newest = newest.max(at);
        }
    }
}
