//! State that readers see: indexes, and a relist as a whole.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

#[test]
fn an_owner_controls_neither_the_objects_of_its_namesake_nor_of_another_kind() {
    let (_, store) = new(vec![Index::by_controller::<Parent>(), Index::by_controller::<Uncle>()]);
    let parent = |number| Parent { metadata: thing("it", number, 1).meta };
    let uncle = Uncle { metadata: thing("it", 2, 1).meta };
    for (name, owner) in [("a", parent(1).as_owner()), ("b", uncle.as_owner())] {
        let mut child = thing(name, 3, 5);
        child.meta.owner = Some(owner.into());
        store.apply_response(child);
    }
    let names = |things: Vec<Arc<Thing>>| -> Vec<String> {
        things.iter().map(|thing| thing.key().name().to_string()).collect()
    };
    assert_eq!(names(store.controlled_by(&parent(1)).unwrap()), ["a"]);
    assert!(store.controlled_by(&parent(2)).unwrap().is_empty());
    assert_eq!(names(store.controlled_by(&uncle).unwrap()), ["b"]);
}

#[test]
fn the_error_for_an_unknown_index_lists_the_known_indexes() {
    let bed = Bed::new();
    let unknown = bed.store.by_index("colour", "red").unwrap_err();
    assert_eq!((&*unknown.name, &*unknown.known), ("colour", &["color".to_owned()][..]));
    let parent = Parent { metadata: thing("it", 1, 1).meta };
    assert!(bed.store.controlled_by(&parent).is_err());
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
    bed.wrote(colored("d", 4, 9, "red"));
    assert_eq!(
        (bed.under("red"), bed.under("blue")),
        (vec!["d".to_owned()], vec!["a".into(), "c".into()])
    );
    bed.list(10, vec![colored("c", 3, 8, "red")]);
    assert_eq!((bed.under("red"), bed.under("blue").len()), (vec!["c".to_owned()], 0));
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

/// One object of a tenant must not end the process.
#[test]
fn a_panic_of_an_index_function_affects_only_that_index() {
    let panics = Index::new("panics", |thing: &Thing, each| {
        each("found".into());
        assert_ne!(&*thing.color, "red", "a defect");
    });
    let (mut writer, store) = new(vec![panics]);
    let found = || store.by_index("panics", "found").unwrap().len();
    for (color, number) in [("blue", 1), ("red", 1), ("blue", 1)] {
        writer.apply(colored("a", 1, writer.store().len() as u64 + number, color));
    }
    store.apply_response(colored("b", 2, 9, "red"));
    assert_eq!(store.len(), 2);
    writer.begin_replace();
    writer.stage(colored("b", 2, 10, "blue"));
    writer.commit(ResourceVersion::new(10));
    assert_eq!((store.len(), found()), (1, 1), "no trace of what is gone");
}

#[test]
fn no_reader_ever_sees_part_of_a_relist() {
    let (mut writer, store) =
        new(vec![Index::new("color", |thing: &Thing, each| each(thing.color.clone()))]);
    let stop = Arc::new(AtomicBool::new(false));
    // Even and odd lists have different objects (with one in common), all of one color.
    let list = |version: u64| {
        let color = if version.is_multiple_of(2) { "even" } else { "odd" };
        (0..300).map(move |i| {
            let name = if i == 0 { "both".to_owned() } else { format!("{color}-{i}") };
            colored(&name, 1 + i + 1000 * (version % 2) * i.min(1), version, color)
        })
    };
    writer.begin_replace();
    list(2).for_each(|thing| writer.stage(thing));
    writer.commit(ResourceVersion::new(2));
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
                            let (odd, even) =
                                (store.by_index("color", "odd").unwrap().len(), store.len());
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
            writer.begin_replace();
            list(version).for_each(|thing| writer.stage(thing));
            assert!(writer.commit(ResourceVersion::new(version)));
        }
        stop.store(true, Ordering::Relaxed);
    });
}
