//! Names, labels and images at the edge of what is allowed.

use fastrand::Rng;

/// Characters that a DNS name consists of, and a few that it does not.
const LETTERS: &[u8] = b"abcz019-.";

/// An object's name, with the lengths at which something happens: 63 (a label), 242 (the
/// DaemonSet's revisions), 253 (an object).
pub fn name(rng: &mut Rng) -> String {
    let length = *rng
        .choice(&[1, 2, 11, 52, 57, 62, 63, 64, 100, 241, 242, 243, 252, 253, 254])
        .expect("some");
    let mut name = text(length, LETTERS, rng);
    // By far most of them would be refused for two dots in a row, or for a dash at either end of a
    // label.
    if rng.u8(..4) > 0 {
        while name.contains("..") || name.contains(".-") || name.contains("-.") {
            name = name.replace("..", "a.").replace(".-", "aa").replace("-.", "aa");
        }
        let end = if name.len() > 1 { "x" } else { "" };
        let inner = name.get(1..name.len().max(2) - 1).unwrap_or("");
        name = format!("x{inner}{end}");
    }
    if rng.bool() {
        name = name.replace('.', "d");
    }
    name
}

/// An image name; some of them are odd.
pub fn image(rng: &mut Rng) -> String {
    let tag = text(rng.usize(1..=130), b"abcXYZ019._-", rng);
    let odd = text(rng.usize(1..=512), b"abc/:@._-!~\"'{}", rng);
    let digest = "0123456789abcdef".repeat(4);
    match rng.u8(..6) {
        0 => format!("nginx:{tag}"),
        1 => format!("registry.example.com:5000/a/b:{tag}@sha256:{digest}"),
        2 => format!("nginx@sha256:{digest}"),
        3 => odd,
        4 => format!("nginx:{tag} "),
        _ => "nginx".to_owned(),
    }
}

/// A node label; some of them are invalid.
pub fn label(rng: &mut Rng) -> Option<String> {
    let part = |rng: &mut Rng| {
        let length = *rng.choice(&[0, 1, 2, 62, 63, 64]).expect("some");
        text(length, b"abcXYZ019._-", rng)
    };
    let key = part(rng);
    let key = match rng.u8(..3) {
        0 => format!("{}/{key}", name(rng)),
        _ => key,
    };
    match rng.u8(..4) {
        0 => None,
        1 => Some(key),
        _ => Some(format!("{key}={}", part(rng))),
    }
}

fn text(length: usize, letters: &[u8], rng: &mut Rng) -> String {
    (0..length).map(|_| char::from(*rng.choice(letters).expect("some"))).collect()
}
