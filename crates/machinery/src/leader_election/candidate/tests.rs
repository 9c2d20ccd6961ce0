use super::*;

const SECOND: Duration = Duration::from_secs(1);
/// The clock does not start at 0.
const START: Duration = Duration::from_secs(1_000);

fn candidate() -> Candidate {
    Candidate::new(Config::default(), "me".into(), Rng::with_seed(1))
}

fn wall() -> Timestamp {
    Timestamp::UNIX_EPOCH
}

fn held_by(who: &str) -> Record {
    Record::default().held_by(who, 15 * SECOND, wall())
}

fn version(number: u64) -> ResourceVersion {
    ResourceVersion::new(number)
}

fn uid(number: u8) -> Uid {
    format!("00000000-0000-0000-0000-0000000000{number:02x}").parse().unwrap()
}

/// The one Lease of most tests.
fn answer(record: Record, number: u64) -> Answer {
    Answer::Lease(record, version(number), uid(1))
}

/// A candidate that has just read a Lease, at [`START`].
fn having_read(record: Record) -> Candidate {
    let mut candidate = candidate();
    assert_eq!(candidate.next(START, wall()), Step::Read);
    candidate.answered(START, answer(record, 1));
    candidate
}

/// One that leads: its renewal was sent at [`START`] and answered a second later.
fn leading() -> Candidate {
    let mut candidate = having_read(held_by("rival").released(wall()));
    let Step::Update(record, _) = candidate.next(START, wall()) else { panic!("a free lease") };
    candidate.answered(START + SECOND, answer(record, 2));
    candidate
}

#[test]
fn permission_counts_from_when_the_renewal_was_sent() {
    assert_eq!(leading().permitted_until(), Some(START + Config::default().validity()));
}

#[test]
fn a_failed_takeover_is_retried_without_another_wait() {
    let mut candidate = having_read(held_by("rival"));
    let mut now = START + 15 * SECOND;
    assert!(matches!(candidate.next(now, wall()), Step::Update(..)));
    candidate.answered(now, Answer::Failed { retry_after: Duration::ZERO });
    let Step::Wait(pause) = candidate.next(now, wall()) else { panic!("a pause") };
    now += pause;
    assert_eq!(candidate.next(now, wall()), Step::Read, "was it carried out?");
    candidate.answered(now, answer(held_by("rival"), 1));
    assert!(matches!(candidate.next(now, wall()), Step::Update(..)));
    assert!(now < START + 16 * SECOND, "{now:?}");
}

#[test]
fn a_read_of_the_sent_record_acknowledges_it_from_its_sending() {
    let mut candidate = leading();
    let had = candidate.permitted_until();
    let sent = START + 3 * SECOND;
    let Step::Update(record, _) = candidate.next(sent, wall()) else { panic!("a renewal is due") };
    candidate.answered(sent + SECOND, Answer::Failed { retry_after: Duration::ZERO });
    assert_eq!(candidate.permitted_until(), had, "it may not have been carried out");
    let now = sent + 2 * SECOND;
    assert_eq!(candidate.next(now, wall()), Step::Read);
    candidate.answered(now, answer(record, 3));
    assert_eq!(candidate.permitted_until(), Some(sent + Config::default().validity()));
}

#[test]
fn a_late_first_renewal_is_acknowledged_although_a_second_one_was_sent() {
    let mut candidate = leading();
    let sent = START + 3 * SECOND;
    let failed = || Answer::Failed { retry_after: Duration::ZERO };
    let Step::Update(first, at) = candidate.next(sent, wall()) else { panic!("a renewal is due") };
    candidate.answered(sent + SECOND, failed());
    let mut now = sent + 2 * SECOND;
    assert_eq!(candidate.next(now, wall()), Step::Read);
    candidate.answered(now, Answer::Lease(held_by("me"), at, uid(1)));
    let Step::Update(second, _) = candidate.next(now, wall()) else { panic!("again") };
    assert_ne!(first, second);
    now += SECOND;
    assert!(candidate.answered(now, Answer::Conflict), "the first was carried out meanwhile");
    now += SECOND;
    assert_eq!(candidate.next(now, wall()), Step::Read);
    candidate.answered(now, answer(first, 3));
    assert_eq!(candidate.permitted_until(), Some(sent + Config::default().validity()));
}

#[test]
fn an_edited_lease_acknowledges_nothing() {
    let mut candidate = leading();
    let had = candidate.permitted_until();
    let sent = START + 3 * SECOND;
    let Step::Update(record, _) = candidate.next(sent, wall()) else { panic!("a renewal is due") };
    candidate.answered(sent + SECOND, Answer::Failed { retry_after: Duration::ZERO });
    let now = sent + 2 * SECOND;
    assert_eq!(candidate.next(now, wall()), Step::Read);
    let edited = Record { lease_duration_seconds: Some(1), ..record };
    candidate.answered(now, answer(edited, 3));
    assert_eq!(candidate.permitted_until(), had);
}

#[test]
fn a_response_with_the_old_version_renews_nothing() {
    let mut candidate = leading();
    let had = candidate.permitted_until();
    let now = START + 3 * SECOND;
    let Step::Update(record, _) = candidate.next(now, wall()) else { panic!("a renewal is due") };
    candidate.answered(now, answer(record, 2));
    assert_eq!(candidate.permitted_until(), had);
}

/// Returns the time from the creation of a Lease in place of a rival's of this duration to permission.
fn until_permitted_in_place_of(rivals: Duration) -> Duration {
    let mut candidate = having_read(Record::default().held_by("rival", rivals, wall()));
    let mut now = START + 3 * SECOND;
    assert_eq!(candidate.next(now, wall()), Step::Read);
    candidate.answered(now, Answer::Absent);
    // It may have been absent for long, and another one there meanwhile.
    now += 100 * SECOND;
    let Step::Create(mut record) = candidate.next(now, wall()) else { panic!("it is created") };
    let created = now;
    for renewals in 2.. {
        candidate.answered(now, Answer::Lease(record, version(renewals), uid(2)));
        if candidate.permitted_until().is_some() {
            break;
        }
        record = loop {
            match candidate.next(now, wall()) {
                Step::Wait(time) => now += time,
                Step::Update(record, _) => break record,
                step => panic!("{step:?}"),
            }
        };
    }
    now - created
}

#[test]
fn a_process_that_recreates_the_lease_waits_for_the_former_holder() {
    // One of a day was edited.
    for (rivals, wait) in [(15, 15), (60, 60), (86_400, 60)] {
        let took = until_permitted_in_place_of(rivals * SECOND).as_secs();
        assert_eq!(took, wait);
    }
}

#[test]
fn a_lease_that_another_client_reassigns_is_neither_used_nor_released() {
    let mut candidate = having_read(held_by("rival"));
    let given = Record { holder_identity: Some("me".into()), ..held_by("rival") };
    let Step::Wait(pause) = candidate.next(START, wall()) else { panic!("the rival has it") };
    let now = START + pause;
    assert_eq!(candidate.next(now, wall()), Step::Read);
    candidate.answered(now, answer(given, 2));
    let Step::Update(record, _) = candidate.next(now, wall()) else { panic!("it is kept") };
    candidate.answered(now, answer(record, 3));
    assert_eq!(candidate.permitted_until(), None);
    candidate.give_up(now + SECOND);
    assert_eq!(candidate.next(now + SECOND, wall()), Step::Done, "the rival may be writing");
}

#[test]
fn a_missing_lease_is_created_at_once() {
    let mut candidate = candidate();
    candidate.next(START, wall());
    candidate.answered(START, Answer::Absent);
    let Step::Create(record) = candidate.next(START, wall()) else { panic!("create") };
    assert_eq!(record.lease_transitions, Some(0));
    candidate.answered(START, Answer::Conflict);
    assert_eq!(candidate.permitted_until(), None, "somebody else created it");
    assert_eq!(candidate.next(START + SECOND, wall()), Step::Read);
}

#[test]
fn a_release_ends_permission_first_and_frees_the_lease() {
    let mut candidate = leading();
    candidate.give_up(START + 2 * SECOND);
    assert_eq!(candidate.permitted_until(), None);
    let Step::Update(record, _) = candidate.next(START + 2 * SECOND, wall()) else {
        panic!("give it up")
    };
    assert_eq!(record.holder_identity.as_deref(), Some(""));
    assert_eq!(record.lease_duration_seconds, Some(1));
    candidate.answered(START + 2 * SECOND, answer(record, 3));
    assert_eq!(candidate.next(START + 2 * SECOND, wall()), Step::Done);
}

#[test]
fn a_process_without_the_lease_releases_nothing() {
    let mut candidate = having_read(held_by("rival"));
    candidate.give_up(START);
    assert_eq!(candidate.next(START, wall()), Step::Done);
}
