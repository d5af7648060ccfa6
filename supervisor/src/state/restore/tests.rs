//! From what a store may hold, whole or not, to what is made of it.

use super::*;
use crate::core::Part;
use protocol::channel::sealed_memfd;
use std::process::{Child, Command, Stdio};

fn settings() -> Settings {
    let second = std::time::Duration::from_secs(1);
    Settings {
        drain_timeout: second,
        stop_timeout: None,
        ready_timeout: second,
        probation: second,
        max_generations: 4,
        check: false,
        health: false,
    }
}

#[expect(clippy::disallowed_methods, reason = "a process to be restored")]
fn process() -> Child {
    Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("cat starts")
}

/// What a supervisor with one active generation leaves, in a format of which this one does not know the exact part.
fn left_behind(child: &Child, change: impl FnOnce(&mut Document)) -> Inherited {
    let generation = Generation(7);
    let process = Some(ProcessEntry::of(child.id()));
    let mut document = Document {
        boot: "00112233445566778899aabbccddeeff".to_owned(),
        next: 8,
        generations: vec![GenerationEntry { generation, part: Part::Active, process }],
        kept: [("tls".to_owned(), names::kept(4))].into(),
        ..Document::default()
    };
    change(&mut document);
    let mut slots = Slots::create().expect("made");
    slots.write(FORMAT + 1, &serde_json::to_vec(&document).expect("JSON")).expect("written");
    let mut fds = Inherited::default();
    let mut insert = |name: &str, fd: OwnedFd| fds.insert(name.to_owned(), fd);
    insert(names::STATE, slots.as_fd().try_clone_to_owned().expect("a duplicate"));
    insert(names::SECRET, sealed_memfd("secret", &[9; 32]).expect("made"));
    insert(&names::kept(4), sealed_memfd("kept", b"a key").expect("made"));
    insert(&names::channel(generation), Channel::pair().expect("a pair").0.into());
    let pidfd = Pidfd::open(child.id()).expect("it runs");
    insert(&names::process(generation), pidfd.as_fd().try_clone_to_owned().expect("a duplicate"));
    fds
}

fn warm(mut fds: Inherited) -> Restored {
    match restore(&mut fds, &settings(), 1, Time::default()) {
        Start::Warm(restored) => *restored,
        Start::Cold(lines) => panic!("cold: {lines:?}"),
    }
}

fn cold(mut fds: Inherited) -> Vec<String> {
    match restore(&mut fds, &settings(), 1, Time::default()) {
        Start::Cold(lines) => lines,
        Start::Warm(restored) => panic!("warm: {restored:?}"),
    }
}

/// Takes one away.
fn without(mut fds: Inherited, name: &str) -> Inherited {
    drop(fds.one(name).expect("it was there"));
    fds
}

fn lives(process: &Whereabouts) -> bool {
    matches!(process, Whereabouts::Lives(process) if process.is_child())
}

fn end(mut child: Child) {
    child.kill().expect("it runs");
    child.wait().expect("ours");
}

#[test]
fn everything_is_found_under_its_name() {
    let child = process();
    let restored = warm(left_behind(&child, |_| {}));
    assert_eq!(restored.secret.expose(), &[9; 32]);
    assert_eq!(restored.boot.as_bytes()[..2], [0, 0x11]);
    assert_eq!((restored.kept[0].name.as_str(), restored.kept[0].number), ("tls", 4));
    let [found] = &restored.generations[..] else { panic!("one generation") };
    assert!(lives(&found.process) && found.channel.is_some());
    assert!(!restored.upgrade);
    assert!(restored.lines.iter().any(|line| line.contains("of another version")));
    end(child);
}

#[test]
fn a_missing_pidfd_is_opened_by_number_only_if_it_is_the_same_process() {
    let child = process();
    let fds = without(left_behind(&child, |_| {}), &names::process(Generation(7)));
    assert!(lives(&warm(fds).generations[0].process));
    let other = |document: &mut Document| {
        document.generations[0].process = Some(ProcessEntry { pid: child.id(), started: Some(1) });
    };
    let fds = without(left_behind(&child, other), &names::process(Generation(7)));
    assert!(matches!(warm(fds).generations[0].process, Whereabouts::Ended));
    end(child);
}

/// Guards the connections of a relay that lives on: who is taken for dead is answered for.
#[test]
fn a_missing_pidfd_of_one_that_can_t_be_told_from_others_is_no_proof_of_its_end() {
    let child = process();
    let unnoted = |document: &mut Document| {
        document.generations[0].process = Some(ProcessEntry { pid: child.id(), started: None });
    };
    let fds = without(left_behind(&child, unnoted), &names::process(Generation(7)));
    assert!(matches!(warm(fds).generations[0].process, Whereabouts::Unknown(_)));
    end(child);
}

#[test]
fn what_is_missing_is_said_and_costs_nothing_else() {
    let child = process();
    let fds = without(without(left_behind(&child, |_| {}), &names::channel(Generation(7))), &names::kept(4));
    let restored = warm(fds);
    assert!(restored.generations[0].channel.is_none() && lives(&restored.generations[0].process));
    assert!(restored.kept.is_empty());
    assert!(restored.lines.iter().any(|line| line.contains("tls")));
    end(child);
}

#[test]
fn one_that_left_is_followed_by_an_upgrade_and_one_that_stopped_by_nothing() {
    let child = process();
    assert!(warm(left_behind(&child, |document| document.ending = Ending::Left)).upgrade);
    assert_eq!(cold(left_behind(&child, |document| document.ending = Ending::Stopped)), [""; 0]);
    assert_eq!(cold(Inherited::default()), [""; 0]);
    end(child);
}

/// Nobody could go on with it, so it is told to drain.
#[test]
fn without_a_document_or_the_secret_the_processes_are_ended() {
    let broken: [fn(Inherited) -> Inherited; 3] = [
        |fds| without(fds, names::SECRET),
        |fds| {
            let mut fds = without(fds, names::STATE);
            fds.insert(
                names::STATE.to_owned(),
                Slots::create().expect("made").as_fd().try_clone_to_owned().expect("dup"),
            );
            fds
        },
        |fds| {
            let mut fds = without(fds, names::SECRET);
            fds.insert(names::SECRET.to_owned(), sealed_memfd("secret", b"short").expect("made"));
            fds
        },
    ];
    for broken in broken {
        let mut child = process();
        assert_eq!(cold(broken(left_behind(&child, |_| {}))).len(), 1);
        let status = child.wait().expect("ours");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGTERM));
    }
}

#[test]
fn a_document_without_a_boot_id_is_none() {
    let mut child = process();
    assert_eq!(cold(left_behind(&child, |document| document.boot.clear())).len(), 1);
    child.wait().expect("it was told to end");
}
