use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::object::{Kind, Meta, ObjectKey, Resource, ResourceVersion, Text, Uid};

/// An object with nothing but metadata and a color.
#[derive(Debug)]
pub(super) struct Thing {
    meta: Meta,
    color: Text,
}

impl Object for Thing {
    type Keep = crate::object::Nothing;
    fn meta(&self) -> &Meta {
        &self.meta
    }
}

pub(super) fn uid(number: u64) -> Uid {
    format!("00000000-0000-4000-8000-{number:012x}").parse().unwrap()
}

/// A kind that controls things.
#[derive(Debug, serde::Deserialize)]
struct Parent {
    metadata: Meta,
}
crate::view!(Parent: Kind::namespaced("example.com", "v1", "Parent", "parents"));

/// An object in namespace `ns`; version 0 is unknown.
pub(super) fn thing(name: &str, uid_number: u64, version: u64) -> Thing {
    colored(name, uid_number, version, "none")
}

fn colored(name: &str, uid_number: u64, version: u64, color: &str) -> Thing {
    let mut meta = Meta::named(ObjectKey::new("ns", name));
    meta.uid = uid(uid_number);
    meta.version = ResourceVersion::new(version);
    Thing { meta, color: color.into() }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("ns", name)
}

/// A store and what it reported, in short: `+a1@5` is an add of `a` with UID 1 at version 5; `own`
/// after it means that it was ours.
struct Bed {
    writer: Writer<Thing>,
    store: Store<Thing>,
    told: Vec<String>,
}

pub(super) fn short(delta: &Delta<Thing>) -> String {
    let number = |object: &Arc<Thing>| {
        let text = object.uid().to_string();
        u64::from_str_radix(text.rsplit('-').next().unwrap(), 16).unwrap()
    };
    let name = |object: &Arc<Thing>| {
        format!("{}{}@{}", object.key().name(), number(object), object.meta().version)
    };
    let text = match delta {
        Delta::Added(object, _) => format!("+{}", name(object)),
        Delta::Updated { old, new, .. } => format!("~{}>{}", name(old), new.meta().version),
        Delta::Deleted(object, _) => format!("-{}", name(object)),
    };
    if delta.origin() == Origin::Own { text + " own" } else { text }
}

impl Bed {
    fn new() -> Bed {
        let colors =
            Index { name: "color", values: |thing: &Thing, each| each(thing.color.clone()) };
        let (writer, store) = new(vec![colors]);
        Bed { writer, store, told: Vec::new() }
    }

    fn list(&mut self, version: u64, things: Vec<Thing>) -> bool {
        self.writer.begin();
        things.into_iter().for_each(|thing| self.writer.listed(thing));
        self.commit(version)
    }

    fn commit(&mut self, version: u64) -> bool {
        let told = &mut self.told;
        self.writer.commit(ResourceVersion::new(version), |delta| told.push(short(&delta)))
    }

    /// Lists two things, by name, UID and version, and has `answer` called for the one that is
    /// settled last when the other one is reported. Returns its name and UID.
    fn list_and_answer<'a>(
        &mut self,
        version: u64,
        things: [(&'a str, u64, u64); 2],
        answer: impl Fn(&Store<Thing>, &str, u64),
    ) -> (&'a str, u64) {
        self.writer.begin();
        for (name, number, version) in things {
            self.writer.listed(thing(name, number, version));
        }
        let (store, told) = (&self.store, &mut self.told);
        let mut last = None;
        self.writer.commit(ResourceVersion::new(version), |delta| {
            told.push(short(&delta));
            if last.is_none() {
                let first = delta.object().key().name() == things[0].0;
                let (name, number, _) = things[usize::from(first)];
                answer(store, name, number);
                last = Some((name, number));
            }
        });
        last.expect("something was reported")
    }

    fn apply(&mut self, thing: Thing) {
        let told = &mut self.told;
        self.writer.apply(thing, |delta| told.push(short(&delta)));
    }

    fn deleted(&mut self, thing: Thing) {
        let told = &mut self.told;
        self.writer.deleted(thing, |delta| told.push(short(&delta)));
    }

    fn bookmark(&mut self, version: u64) {
        let told = &mut self.told;
        self.writer.bookmark(ResourceVersion::new(version), |delta| told.push(short(&delta)));
    }

    /// What was reported since the last call.
    fn told(&mut self) -> Vec<String> {
        let mut told = std::mem::take(&mut self.told);
        told.sort();
        told
    }

    /// What is held, as `a1@5`.
    fn held(&self) -> Vec<String> {
        let mut held: Vec<String> = self
            .store
            .list()
            .iter()
            .map(|object| short(&Delta::Added(object.clone(), Origin::Server)).split_off(1))
            .collect();
        held.sort();
        assert_eq!(held.len(), self.store.len());
        held
    }

    fn under(&self, color: &str) -> Vec<String> {
        let mut names: Vec<String> = self
            .store
            .by_index("color", color)
            .iter()
            .map(|object| object.key().name().to_string())
            .collect();
        names.sort();
        names
    }
}

#[test]
fn what_an_owner_controls_is_not_what_its_namesake_does() {
    let parent = |number| Parent { metadata: thing("parent", number, 1).meta };
    let (writer, store) = new(vec![Index::by_controller::<Parent>()]);
    let mut child = thing("child", 3, 5);
    child.meta.owner = Some(parent(1).as_owner());
    drop(writer);
    store.wrote(child);
    assert_eq!(store.controlled_by(&parent(1)).len(), 1);
    assert!(store.controlled_by(&parent(2)).is_empty());
}

#[test]
fn a_relist_of_unchanged_objects_tells_nothing_and_replaces_nothing() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 3), thing("b", 2, 5)]);
    assert_eq!(bed.told(), ["+a1@3", "+b2@5"]);
    let before = bed.store.get(&key("a")).unwrap();
    bed.list(9, vec![thing("a", 1, 3), thing("b", 2, 5)]);
    assert!(bed.told().is_empty());
    assert!(Arc::ptr_eq(&before, &bed.store.get(&key("a")).unwrap()));
    assert_eq!(bed.writer.version(), ResourceVersion::new(9));
}

#[test]
fn what_a_list_lacks_was_deleted_and_deletes_come_first() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 3), thing("b", 2, 5)]);
    bed.told.clear();
    bed.list(9, vec![thing("b", 2, 7), thing("c", 3, 8)]);
    assert_eq!(bed.told[0], "-a1@3");
    assert_eq!(bed.told(), ["+c3@8", "-a1@3", "~b2@5>7"]);
    assert_eq!(bed.held(), ["b2@7", "c3@8"]);
}

#[test]
fn a_new_object_under_an_old_name_is_a_delete_and_an_add() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 3), thing("b", 2, 4)]);
    bed.told.clear();
    bed.apply(thing("a", 7, 6));
    assert_eq!(bed.told, ["-a1@3", "+a7@6"]);
    bed.told.clear();
    bed.list(9, vec![thing("a", 7, 6), thing("b", 8, 9)]);
    assert_eq!(bed.told, ["-b2@4", "+b8@9"]);
}

#[test]
fn a_list_older_than_what_was_seen_is_refused_whole() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 3)]);
    bed.apply(thing("a", 1, 8));
    bed.told.clear();
    assert!(!bed.list(7, vec![]));
    assert!(bed.told().is_empty());
    assert_eq!(bed.held(), ["a1@8"]);
    assert!(bed.list(8, vec![thing("a", 1, 8)]));
}

#[test]
fn a_list_that_has_an_object_as_it_was_before_what_is_held_contradicts_unless_it_is_older_itself() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 3)]);
    bed.apply(thing("a", 1, 8));
    let mut asked = |listed: Vec<Thing>, at: u64| {
        bed.writer.begin();
        listed.into_iter().for_each(|thing| bed.writer.listed(thing));
        bed.writer.contradiction(ResourceVersion::new(at)).is_some()
    };
    assert!(asked(vec![thing("a", 1, 3)], 8), "at 8 there was a@8");
    assert!(asked(vec![thing("a", 1, 3)], 1000));
    assert!(!asked(vec![thing("a", 1, 3)], 7), "it lags");
    assert!(!asked(vec![thing("a", 1, 3), thing("a", 1, 8)], 9), "a stream comes to it");
    assert!(!asked(vec![thing("a", 1, 9)], 9));
    assert!(!asked(vec![], 9), "it is gone");
}

#[test]
fn old_and_repeated_events_change_nothing() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 3)]);
    bed.apply(thing("a", 1, 6));
    bed.deleted(thing("a", 1, 7));
    bed.told.clear();
    bed.apply(thing("a", 1, 3));
    bed.apply(thing("a", 1, 6));
    bed.deleted(thing("a", 1, 7));
    assert!(bed.told().is_empty());
    assert!(bed.held().is_empty());
    bed.apply(thing("a", 2, 8));
    bed.told.clear();
    bed.deleted(thing("a", 1, 7));
    assert_eq!((bed.told().len(), bed.held()), (0, vec!["a2@8".to_owned()]));
}

#[test]
fn our_own_write_is_visible_at_once_and_its_echo_is_ours() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 3)]);
    bed.told.clear();
    bed.store.wrote(thing("a", 1, 6));
    bed.store.wrote(thing("b", 2, 7));
    assert_eq!(bed.held(), ["a1@6", "b2@7"]);
    assert!(bed.told().is_empty());
    bed.apply(thing("a", 1, 6));
    bed.apply(thing("b", 2, 7));
    assert_eq!(bed.told(), ["+b2@7 own", "~a1@3>6 own"]);
    assert_eq!(bed.store.unconfirmed(), 0);
}

#[test]
fn a_change_of_somebody_else_before_our_write_is_told_though_it_is_older_than_what_we_hold() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 5)]);
    bed.told.clear();
    bed.store.wrote(thing("a", 1, 7));
    bed.apply(thing("a", 1, 6));
    assert_eq!(bed.told(), ["~a1@5>7"], "to the newest state, and not as ours");
    assert_eq!(bed.held(), ["a1@7"], "the view does not go back");
    bed.apply(thing("a", 1, 7));
    assert_eq!(bed.told(), ["~a1@7>7 own"]);
}

#[test]
fn after_a_relist_our_own_write_is_not_surely_all_that_happened() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 5)]);
    bed.told.clear();
    bed.store.wrote(thing("a", 1, 7));
    bed.list(8, vec![thing("a", 1, 7)]);
    assert_eq!(bed.told(), ["~a1@5>7"]);
    assert_eq!(bed.store.unconfirmed(), 0);
}

#[test]
fn a_list_from_before_our_writes_takes_none_of_them_back() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 5), thing("d", 4, 4)]);
    bed.told.clear();
    bed.store.wrote(thing("a", 1, 7));
    bed.store.wrote(thing("b", 2, 8));
    bed.store.removed(&key("d"), uid(4));
    assert!(bed.list(6, vec![thing("a", 1, 5), thing("d", 4, 4)]));
    assert_eq!(bed.held(), ["a1@7", "b2@8"]);
    assert!(bed.told().is_empty());
    bed.apply(thing("a", 1, 7));
    bed.apply(thing("b", 2, 8));
    bed.deleted(thing("d", 4, 9));
    assert_eq!(bed.told(), ["+b2@8 own", "-d4@9 own", "~a1@5>7 own"]);
    assert_eq!(bed.store.unconfirmed(), 0);
}

#[test]
fn our_write_during_a_relist_is_neither_hidden_nor_swept() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 5), thing("c", 3, 5)]);
    bed.told.clear();
    bed.writer.begin();
    bed.writer.listed(thing("a", 1, 6));
    bed.store.wrote(thing("a", 1, 8));
    bed.store.wrote(thing("b", 2, 9));
    bed.store.wrote(thing("c", 3, 10));
    bed.writer.listed(thing("c", 3, 5));
    assert_eq!(bed.held(), ["a1@8", "b2@9", "c3@10"]);
    assert!(bed.commit(7));
    assert_eq!(bed.held(), ["a1@8", "b2@9", "c3@10"]);
    assert_eq!(bed.told(), ["~a1@5>8"], "somebody else wrote a6");
}

#[test]
fn an_object_we_deleted_is_not_seen_again() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 5)]);
    bed.told.clear();
    bed.store.removed(&key("a"), uid(1));
    assert!(bed.held().is_empty());
    bed.apply(thing("a", 1, 6));
    assert!(bed.held().is_empty());
    assert_eq!(bed.told(), ["~a1@5>6"], "somebody changed it before");
    bed.deleted(thing("a", 1, 7));
    assert_eq!(bed.told(), ["-a1@7 own"]);
    bed.apply(thing("a", 2, 8));
    assert_eq!(bed.held(), ["a2@8"]);
}

#[test]
fn the_late_answer_to_a_write_does_not_bring_back_what_we_deleted_since() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 5)]);
    bed.told.clear();
    bed.store.removed(&key("a"), uid(1));
    bed.store.wrote(thing("a", 1, 6));
    assert!(bed.held().is_empty());
    bed.deleted(thing("a", 1, 7));
    assert_eq!(bed.told(), ["-a1@7 own"]);
}

#[test]
fn our_write_is_not_all_that_happened_if_a_change_before_it_could_not_be_read() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 5)]);
    bed.told.clear();
    bed.store.wrote(thing("a", 1, 7));
    bed.writer.displaced(&key("a"), uid(1), |_| panic!("it is the same object"));
    bed.apply(thing("a", 1, 7));
    assert_eq!(bed.told(), ["~a1@5>7"], "somebody else's change is in it, too");
}

#[test]
fn what_we_made_and_somebody_deleted_in_a_gap_is_told() {
    let mut bed = Bed::new();
    bed.list(5, vec![]);
    bed.store.wrote(thing("a", 1, 6));
    bed.list(9, vec![]);
    assert_eq!(bed.told, ["+a1@6", "-a1@6"]);
    assert!(bed.held().is_empty());
}

#[test]
fn what_we_made_and_somebody_deleted_before_a_list_and_our_answer_is_told_with_the_next_news() {
    let mut bed = Bed::new();
    bed.list(5, vec![]);
    // The create was 6, the delete 7, and the answer to the create is still under way.
    bed.list(9, vec![]);
    bed.store.wrote(thing("a", 1, 6));
    assert!(bed.held().is_empty(), "it is not brought back");
    bed.bookmark(9);
    assert_eq!(bed.told, ["+a1@6", "-a1@6"]);
    bed.told.clear();
    bed.bookmark(10);
    assert!(bed.told().is_empty());
}

#[test]
fn what_was_lost_is_told_before_what_we_made_again() {
    let mut bed = Bed::new();
    bed.list(5, vec![]);
    bed.list(9, vec![]);
    bed.store.wrote(thing("a", 1, 6));
    bed.store.wrote(thing("a", 2, 10));
    bed.apply(thing("a", 2, 10));
    assert_eq!(bed.told, ["+a1@6", "-a1@6", "+a2@10 own"]);
}

#[test]
fn an_answer_that_the_watch_has_overtaken_changes_nothing() {
    let mut bed = Bed::new();
    bed.list(5, vec![]);
    bed.apply(thing("a", 1, 6));
    bed.deleted(thing("a", 1, 7));
    bed.store.wrote(thing("a", 1, 6));
    assert!(bed.held().is_empty());
    bed.store.removed(&key("a"), uid(1));
    assert_eq!(bed.store.unconfirmed(), 0);
    bed.told.clear();
    bed.bookmark(8);
    assert!(bed.told().is_empty(), "handlers have heard of it already");
}

#[test]
fn an_object_outside_of_what_is_watched_leaves_with_the_next_bookmark() {
    let mut bed = Bed::new();
    bed.list(5, vec![]);
    bed.store.wrote(thing("a", 1, 6));
    bed.bookmark(5);
    assert_eq!(bed.held(), ["a1@6"]);
    bed.bookmark(8);
    assert!(bed.held().is_empty());
    assert_eq!((bed.told().len(), bed.store.unconfirmed()), (0, 0));
}

#[test]
fn without_versions_the_watch_is_believed_and_answers_are_not() {
    let mut bed = Bed::new();
    bed.list(0, vec![thing("a", 1, 0)]);
    bed.store.wrote(thing("a", 1, 0));
    assert_eq!(bed.store.unconfirmed(), 0);
    bed.apply(thing("a", 1, 0));
    bed.deleted(thing("a", 1, 0));
    assert!(bed.held().is_empty());
    assert_eq!(bed.told, ["+a1@unknown", "~a1@unknown>unknown", "-a1@unknown"]);
}

#[test]
fn an_undecodable_item_keeps_what_is_held_of_it_and_only_that() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 3), thing("b", 2, 4)]);
    bed.told.clear();
    bed.writer.begin();
    bed.writer.keep(&key("a"), uid(1));
    bed.writer.keep(&key("b"), uid(9));
    bed.commit(8);
    assert_eq!(bed.told(), ["-b2@4"]);
    assert_eq!(bed.held(), ["a1@3"]);
    bed.writer.displaced(&key("a"), uid(1), |_| panic!("it is the same object"));
    bed.writer.vanished(&key("a"), ResourceVersion::new(9), |delta| {
        assert_eq!(short(&delta), "-a1@3");
    });
    assert!(bed.held().is_empty());
}

#[test]
fn what_a_streaming_list_takes_back_is_not_held() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 3), thing("b", 2, 4)]);
    bed.told.clear();
    bed.writer.begin();
    for name in ["a", "b", "c"] {
        bed.writer.listed(thing(name, name.bytes().map(u64::from).sum::<u64>() - 96, 4));
        bed.writer.unlisted(&key(name));
    }
    bed.writer.listed(thing("b", 2, 4));
    bed.commit(8);
    assert_eq!((bed.told(), bed.held()), (vec!["-a1@3".to_owned()], vec!["b2@4".to_owned()]));
}

#[test]
fn a_list_that_is_given_up_leaves_no_trace() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 3)]);
    bed.told.clear();
    bed.writer.begin();
    bed.writer.listed(thing("b", 2, 4));
    bed.writer.abandon();
    assert!(!bed.commit(9));
    assert_eq!((bed.told().len(), bed.held()), (0, vec!["a1@3".to_owned()]));
}

#[test]
fn indexes_follow_every_change() {
    let mut bed = Bed::new();
    bed.list(
        5,
        vec![colored("a", 1, 3, "red"), colored("b", 2, 4, "red"), colored("c", 3, 5, "blue")],
    );
    assert_eq!(
        (bed.under("red"), bed.under("blue")),
        (vec!["a".into(), "b".into()], vec!["c".to_owned()])
    );
    bed.apply(colored("a", 1, 6, "blue"));
    bed.deleted(colored("b", 2, 7, "red"));
    bed.store.wrote(colored("d", 4, 9, "red"));
    assert_eq!(
        (bed.under("red"), bed.under("blue")),
        (vec!["d".to_owned()], vec!["a".into(), "c".into()])
    );
    bed.list(10, vec![colored("c", 3, 8, "red")]);
    assert_eq!((bed.under("red"), bed.under("blue").len()), (vec!["c".to_owned()], 0));
    assert!(bed.store.by_index("size", "red").is_empty());
}

#[test]
fn an_index_follows_a_value_that_many_objects_have() {
    let mut bed = Bed::new();
    let all = |color: &'static str, from: u64, to: u64, version: u64| {
        (from..to).map(move |i| colored(&format!("t{i}"), i + 1, version + i, color))
    };
    bed.list(1000, all("red", 0, 600, 1).collect());
    all("blue", 0, 599, 2000).for_each(|thing| bed.apply(thing));
    assert_eq!((bed.under("red"), bed.under("blue").len()), (vec!["t599".to_owned()], 599));
    all("blue", 1, 599, 3000).for_each(|thing| bed.deleted(thing));
    assert_eq!(bed.under("blue"), ["t0"]);
    bed.list(5000, all("red", 0, 600, 4000).collect());
    assert_eq!((bed.under("red").len(), bed.under("blue").len()), (600, 0));
}

#[test]
fn an_index_function_that_panics_harms_only_its_object() {
    let shy = Index {
        name: "shy",
        values: |thing: &Thing, each| {
            each("found".into());
            assert_ne!(thing.color, "invisible", "shy");
        },
    };
    let (mut writer, store) = new(vec![shy]);
    writer.apply(colored("a", 1, 1, "invisible"), |_| {});
    writer.apply(colored("b", 2, 2, "red"), |_| {});
    assert_eq!(store.len(), 2);
    assert_eq!(store.by_index("shy", "found").len(), 1);
    assert_eq!(store.index_panics(), 1);
    writer.apply(colored("a", 1, 3, "red"), |_| {});
    assert_eq!(store.by_index("shy", "found").len(), 2);
}

#[test]
fn no_reader_ever_sees_part_of_a_relist() {
    let (mut writer, store) =
        new(vec![Index { name: "color", values: |thing: &Thing, each| each(thing.color.clone()) }]);
    let stop = Arc::new(AtomicBool::new(false));
    // Even and odd lists have different objects (with one in common), all of one color.
    let list = |version: u64| {
        let color = if version.is_multiple_of(2) { "even" } else { "odd" };
        (0..300).map(move |i| {
            let name = if i == 0 { "both".to_owned() } else { format!("{color}-{i}") };
            colored(&name, 1 + i + 1000 * (version % 2) * i.min(1), version, color)
        })
    };
    writer.begin();
    list(2).for_each(|thing| writer.listed(thing));
    writer.commit(ResourceVersion::new(2), |_| {});
    std::thread::scope(|scope| {
        for reader in 0..3 {
            let (store, stop) = (store.clone(), stop.clone());
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    match reader {
                        0 => {
                            let all = store.list();
                            let odd = all.iter().filter(|thing| thing.color == "odd").count();
                            assert!(
                                all.len() == 300 && (odd == 0 || odd == 300),
                                "{odd} of {}",
                                all.len()
                            );
                        }
                        1 => {
                            let (odd, even) = (store.by_index("color", "odd").len(), store.len());
                            assert!((odd == 0 || odd == 300) && even == 300, "{odd} of {even}");
                        }
                        _ => {
                            let both = store.get(&key("both")).unwrap();
                            let version = both.meta().version.number().unwrap();
                            // A later read must still be consistent with what was just seen.
                            let later = store.get(&key("both")).unwrap();
                            assert!(later.meta().version.number().unwrap() >= version);
                        }
                    }
                }
            });
        }
        for version in 3..120 {
            writer.begin();
            list(version).for_each(|thing| writer.listed(thing));
            assert!(writer.commit(ResourceVersion::new(version), |_| {}));
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn our_delete_that_is_answered_while_a_list_is_settled_leaves_nothing_behind() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 3), thing("b", 2, 4)]);
    let (name, number) =
        bed.list_and_answer(9, [("a", 1, 7), ("b", 2, 8)], |store, name, number| {
            store.removed(&key(name), uid(number));
        });
    assert!(bed.store.shared().state.read().is_settled());
    bed.deleted(thing(name, number, 10));
    bed.told.clear();
    let left = if name == "a" { thing("b", 2, 8) } else { thing("a", 1, 7) };
    bed.list(11, vec![left]);
    assert!(bed.told().is_empty());
    assert_eq!((bed.held().len(), bed.store.unconfirmed()), (1, 0));
}

#[test]
fn what_we_made_and_deleted_after_a_list_was_taken_is_not_seen_again() {
    let mut bed = Bed::new();
    bed.list(5, vec![]);
    bed.writer.begin();
    bed.store.wrote(thing("a", 1, 11));
    bed.store.removed(&key("a"), uid(1));
    bed.commit(10);
    bed.apply(thing("a", 1, 11));
    assert!(bed.held().is_empty());
    bed.deleted(thing("a", 1, 12));
    assert_eq!((bed.held().len(), bed.store.unconfirmed()), (0, 0));
}

#[test]
fn a_stream_that_comes_to_what_was_held_does_not_contradict_it_though_we_write_meanwhile() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 3)]);
    bed.apply(thing("a", 1, 8));
    bed.writer.begin();
    bed.writer.listed(thing("a", 1, 3));
    bed.store.wrote(thing("a", 1, 9));
    assert!(bed.writer.contradiction(ResourceVersion::new(9)).is_some());
    bed.writer.listed(thing("a", 1, 8));
    assert!(bed.writer.contradiction(ResourceVersion::new(9)).is_none());
}

#[test]
fn a_change_that_could_not_be_read_is_not_hidden_by_our_write_after_it() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 5), thing("b", 2, 5)]);
    bed.told.clear();
    bed.writer.displaced(&key("a"), uid(1), |_| panic!("it is the same object"));
    bed.store.wrote(thing("a", 1, 7));
    bed.apply(thing("a", 1, 7));
    assert_eq!(bed.told(), ["~a1@5>7"], "somebody else's 6 is in it, too");
    bed.writer.begin();
    bed.writer.listed(thing("a", 1, 7));
    bed.writer.keep(&key("b"), uid(2));
    bed.commit(9);
    bed.store.wrote(thing("b", 2, 10));
    bed.apply(thing("b", 2, 10));
    assert_eq!(bed.told(), ["~b2@5>10"], "so it is with what a list shows");
    assert_eq!(bed.store.unconfirmed(), 0);
}

#[test]
fn what_we_write_while_a_list_cannot_read_it_is_not_lost() {
    let mut bed = Bed::new();
    bed.list(5, vec![]);
    bed.store.wrote(thing("a", 1, 6));
    bed.writer.begin();
    bed.writer.keep(&key("a"), uid(1));
    bed.store.wrote(thing("a", 1, 7));
    bed.commit(8);
    assert_eq!((bed.told(), bed.held()), (vec!["+a1@7".to_owned()], vec!["a1@7".to_owned()]));
}

#[test]
fn what_we_write_while_a_list_is_settled_hides_nothing_that_the_next_one_shows() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 3), thing("b", 2, 4)]);
    let (name, number) =
        bed.list_and_answer(9, [("a", 1, 7), ("b", 2, 8)], |store, name, number| {
            store.wrote(thing(name, number, 12));
        });
    bed.told.clear();
    // Somebody else has written the two at 10 and 11.
    bed.list(11, vec![thing("a", 1, 10), thing("b", 2, 11)]);
    assert!(bed.told().contains(&format!("~{name}{number}@12>12")));
    assert_eq!(bed.store.unconfirmed(), 1);
}

#[test]
fn our_delete_that_is_answered_after_a_list_without_the_object_is_not_remembered() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 3), thing("b", 2, 4)]);
    bed.store.wrote(thing("a", 1, 6));
    bed.store.wrote(thing("b", 2, 7));
    bed.writer.begin();
    let store = bed.store.clone();
    bed.writer.commit(ResourceVersion::new(9), |_| {
        store.removed(&key("a"), uid(1));
        store.removed(&key("b"), uid(2));
    });
    assert_eq!((bed.held().len(), bed.store.unconfirmed()), (0, 0));
}

#[test]
fn the_end_of_an_object_that_cannot_be_read_leaves_what_we_did_after_it() {
    let mut bed = Bed::new();
    bed.list(5, vec![]);
    bed.store.wrote(thing("a", 2, 8));
    bed.apply(thing("a", 1, 6));
    bed.store.removed(&key("a"), uid(2));
    bed.told.clear();
    bed.writer.vanished(&key("a"), ResourceVersion::new(7), |delta| {
        assert_eq!(short(&delta), "-a1@6");
    });
    bed.apply(thing("a", 2, 8));
    assert!(bed.held().is_empty());
    bed.deleted(thing("a", 2, 9));
    assert_eq!(bed.told(), ["+a2@8 own", "-a2@9 own"]);
    assert_eq!(bed.store.unconfirmed(), 0);
}

#[test]
fn our_delete_hides_nothing_that_the_list_being_settled_has_just_shown() {
    let mut bed = Bed::new();
    // A list is settled one object at a time unless it is the first news of any kind.
    bed.store.wrote(thing("c", 3, 4));
    let (name, number) =
        bed.list_and_answer(2, [("a", 2, 2), ("b", 1, 1)], |store, name, number| {
            store.removed(&key(name), uid(number));
        });
    bed.apply(thing("c", 3, 4));
    let went = if name == "a" { "-a2@2" } else { "-b1@1" };
    let others = bed.told().into_iter().filter(|told| !told.ends_with("own"));
    assert_eq!(others.collect::<Vec<_>>(), ["+a2@2", "+b1@1", went]);
    bed.deleted(thing(name, number, 5));
    assert_eq!((bed.told().len(), bed.store.unconfirmed()), (0, 0));
}

#[test]
fn what_we_delete_while_a_list_is_settled_is_reported_once() {
    let mut bed = Bed::new();
    bed.list(5, vec![]);
    for (name, number) in [("a", 1), ("b", 2)] {
        bed.store.wrote(thing(name, number, 5 + number));
        bed.store.removed(&key(name), uid(number));
    }
    let (name, number) =
        bed.list_and_answer(12, [("a", 3, 10), ("b", 4, 11)], |store, name, number| {
            store.removed(&key(name), uid(number));
        });
    bed.deleted(thing(name, number, 13));
    assert_eq!(bed.told().len(), 3, "two that came, one that went");
    assert_eq!(bed.store.unconfirmed(), 0);
}

#[test]
fn our_delete_that_is_answered_after_a_list_with_a_namesake_is_not_remembered() {
    let mut bed = Bed::new();
    bed.list(2, vec![thing("a", 1, 1), thing("b", 2, 2)]);
    bed.store.wrote(thing("a", 1, 3));
    bed.store.wrote(thing("b", 2, 4));
    let old = |name: &str| if name == "a" { 1 } else { 2 };
    bed.list_and_answer(10, [("a", 3, 7), ("b", 4, 8)], |store, name, _| {
        store.removed(&key(name), uid(old(name)));
    });
    assert_eq!((bed.held(), bed.store.unconfirmed()), (vec!["a3@7".into(), "b4@8".into()], 0));
}

#[test]
fn what_we_deleted_is_not_seen_again_though_a_list_could_not_read_it() {
    let mut bed = Bed::new();
    bed.list(5, vec![]);
    bed.store.wrote(thing("a", 1, 6));
    bed.store.removed(&key("a"), uid(1));
    bed.writer.begin();
    bed.writer.keep(&key("a"), uid(1));
    bed.commit(8);
    bed.apply(thing("a", 1, 9));
    assert!(bed.held().is_empty());
    bed.deleted(thing("a", 1, 10));
    assert_eq!(
        (bed.told(), bed.store.unconfirmed()),
        (vec!["+a1@9".into(), "-a1@10 own".into()], 0)
    );
}

#[test]
fn what_can_be_read_again_as_it_was_told_is_forgotten() {
    let mut bed = Bed::new();
    bed.list(5, vec![]);
    bed.store.wrote(thing("a", 1, 7));
    bed.writer.begin();
    bed.writer.keep(&key("a"), uid(1));
    bed.commit(6);
    assert_eq!((bed.told(), bed.store.unconfirmed()), (vec!["+a1@7".into()], 1));
    bed.list(8, vec![thing("a", 1, 7)]);
    assert_eq!((bed.told().len(), bed.store.unconfirmed()), (0, 0));
}
