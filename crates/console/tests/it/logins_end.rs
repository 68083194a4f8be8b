use std::net::TcpStream;
use std::time::Duration;

use cairn_console::limits;
use cairn_fs::ops::credentials::{DisableUser, RemoveCredential};

use crate::harness::Rig;

#[test]
fn only_an_access_key_and_its_secret_log_in() {
    let rig = Rig::start();
    let mut browser = rig.browser();
    let asked = browser.get("/b/photos?in=a%2F");
    assert_eq!(
        (asked.status, asked.header("location")),
        (303, "/login?to=/b/photos%3Fin%3Da%252F")
    );
    for (id, secret) in [(rig.root.id.as_str(), "wrong"), ("nobody", "wrong"), ("", "")] {
        let reply = browser.log_in(id, secret);
        assert_eq!(reply.status, 401, "{id}");
        assert!(!reply.body.contains("wrong") && browser.cookie.is_none());
    }
    let record = rig.audited("bad_credentials");
    assert!(record.contains(r#""door":"console","operation":"LogIn","outcome":"refused""#));
    let form =
        format!("key={}&secret={}&to=%2F%2Fevil.example", rig.root.id, rig.root.secret.expose());
    let reply = browser.post("/login", &form);
    assert_eq!((reply.status, reply.header("location")), (303, "/"));
    let cookie = reply.header("set-cookie");
    assert!(
        cookie.contains("; HttpOnly; SameSite=Strict;") && cookie.contains("Path=/;"),
        "{cookie}"
    );
    assert!(!cookie.contains("Domain") && browser.is_logged_in());
    let record = rig.audited(r#""outcome":"done""#);
    let kept = browser.cookie.clone().unwrap();
    let secret = kept.rsplit('.').next().unwrap();
    assert!(record.contains(&format!(r#""credential":"{}""#, rig.root.id)), "{record}");
    assert!(!record.contains(secret) && !record.contains(rig.root.secret.expose().as_str()));
    let page = browser.get("/").body;
    assert!(!page.contains(secret) && !page.contains(rig.root.secret.expose().as_str()));
}

/// Behind a proxy all users have one address.
#[test]
fn a_right_secret_does_not_wait_for_guesses() {
    const GUESSES: usize = 200;
    let rig = Rig::start();
    let guess = || {
        let form = format!("key={}&secret=wrong", rig.root.id);
        rig.browser().open_form("/login", &form)
    };
    let guesses: Vec<_> = std::iter::repeat_with(guess).take(GUESSES).collect();
    let answered = || {
        let is_answered = |stream: &&TcpStream| {
            stream.set_nonblocking(true).unwrap();
            stream.peek(&mut [0]).is_ok_and(|bytes| bytes > 0)
        };
        guesses.iter().filter(is_answered).count()
    };
    // The first ones are not held back. After them all places of this network are taken.
    while answered() < limits::FREE_FAILURES as usize {
        std::thread::sleep(Duration::from_millis(1));
    }
    rig.root();
    // A login that waited behind the guesses would be answered after all of them.
    let answered = answered();
    assert!(answered < GUESSES / 2, "{answered} guesses were answered before");
}

#[test]
fn a_login_that_is_not_used_is_over_and_so_is_an_old_one() {
    let rig = Rig::start();
    let mut idle = rig.root();
    rig.clock.advance(limits::IDLE - Duration::from_secs(60));
    assert!(idle.is_logged_in());
    rig.clock.advance(limits::IDLE - Duration::from_secs(60));
    assert!(idle.is_logged_in(), "its use was noted");
    rig.clock.advance(limits::IDLE + Duration::from_secs(60));
    assert!(!idle.is_logged_in());
    let mut busy = rig.root();
    let step = limits::IDLE / 2;
    for _ in 0..limits::LIFETIME.as_secs() / step.as_secs() - 1 {
        rig.clock.advance(step);
        assert!(busy.is_logged_in());
    }
    rig.clock.advance(step);
    assert!(!busy.is_logged_in());
}

#[test]
fn logging_out_ends_it_at_the_server() {
    let rig = Rig::start();
    let (mut one, mut other) = (rig.root(), rig.root());
    let mut stolen = one.clone();
    assert_eq!(one.post("/logout", "").status, 303);
    assert!(one.cookie.is_none() && !stolen.is_logged_in() && other.is_logged_in());
    let (mut third, mut alice) = (rig.root(), rig.user("alice"));
    other.clone().post("/logout-everywhere", "");
    assert!(!other.is_logged_in() && !third.is_logged_in() && alice.is_logged_in());
}

#[test]
fn it_ends_with_its_user_and_its_access_key() {
    let rig = Rig::start();
    let mut alice = rig.user("alice");
    let disable = |disabled| rig.run(DisableUser { name: "alice".into(), disabled });
    disable(true);
    assert!(!alice.is_logged_in());
    disable(false);
    assert!(!alice.is_logged_in(), "it does not come back");

    let mut bob = rig.user("bob");
    rig.clock.advance(Duration::from_secs(1));
    rig.credential("bob", true);
    assert!(!bob.is_logged_in(), "the access key has another secret");

    let mut carol = rig.user("carol");
    rig.run(RemoveCredential { id: "KEY-carol".into() });
    assert!(!carol.is_logged_in());
}

#[test]
fn a_login_replaces_the_one_before_and_there_are_not_many() {
    let rig = Rig::start();
    let mut browser = rig.root();
    let mut fixed = browser.clone();
    browser.log_in(&rig.root.id, rig.root.secret.expose());
    assert!(browser.is_logged_in() && !fixed.is_logged_in());
    let others: Vec<_> = (0..cairn_fs::ops::logins::LOGINS)
        .map(|_| {
            rig.clock.advance(Duration::from_secs(1));
            rig.root()
        })
        .collect();
    assert!(!browser.is_logged_in());
    assert!(others.into_iter().all(|mut other| other.is_logged_in()));
}

#[test]
fn a_secret_that_is_guessed_or_planted_opens_nothing() {
    let rig = Rig::start();
    let browser = rig.root();
    let cookie = browser.cookie.clone().unwrap();
    let (name, value) = cookie.split_once('=').unwrap();
    let (user, secret) = value.split_once('.').unwrap();
    let other: String = secret.chars().rev().collect();
    for planted in [
        format!("{name}={user}.{other}"),
        format!("{name}=2.{secret}"),
        format!("{name}={user}."),
        format!("{cookie}; {cookie}"),
    ] {
        let mut browser = browser.clone();
        browser.cookie = Some(planted.clone());
        assert!(!browser.is_logged_in(), "{planted}");
    }
}
