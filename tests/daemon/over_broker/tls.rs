//! Connections to the broker by TLS: certificates that are the broker's, and such as are not.

use std::path::Path;
use std::process::Command;

use super::{Installation, broker, lines, prefix, relay_command, wait_said};
use crate::common::Site;

fn variable(name: &str) -> String {
    let found = std::env::var(name);
    found.expect("this test is for the broker that tests/broker-server.sh starts")
}

/// The broker's URL; its certificate is for `localhost`.
fn url() -> String {
    variable("SHIFTBOSS_TEST_BROKER_TLS")
}

/// Has a command trust a file of authorities.
fn trusting(mut command: Command, authorities: &Path) -> Command {
    command.env("SSL_CERT_FILE", authorities).env_remove("SSL_CERT_DIR");
    command
}

/// Who trusts the authority has all that there is without TLS.
#[test]
fn a_broker_with_the_right_certificate() {
    let (authority, url) = (variable("SHIFTBOSS_TEST_BROKER_CA"), url());
    let (far, near, prefix) = (Site::bare(), Site::bare(), prefix());
    let serve = near.serve(&["--broker", &url, "--broker-prefix", &prefix]);
    let daemon = near.spawn(trusting(serve, Path::new(&authority))).ready();
    let installation = Installation::of(daemon, near, prefix);
    let relay = relay_command(&far, &installation.prefix, &url, "r");
    let _relay = far.spawn(trusting(relay, Path::new(&authority))).ready();
    far.write("f.1.txt", lines(0..1_000, "1"));
    installation.site.wait_count(1_000);
    assert!(far.ask("READY").starts_with("JOB key-"));
}

/// A certificate of nobody who is trusted, or of another host, is no broker's: nobody logs in there, and it is said why.
#[test]
fn a_broker_with_a_wrong_certificate() {
    let authority = variable("SHIFTBOSS_TEST_BROKER_CA");
    let others = Site::bare();
    let other = others.path("other.pem");
    make_authority(&other);
    let elsewhere = url().replace("localhost", "127.0.0.1");
    let plain = broker().replace("amqp://", "amqps://");
    for (url, authority, why) in [
        (&url(), other.as_path(), "UnknownIssuer"),
        (&elsewhere, Path::new(&authority), "not valid for name"),
        (&plain, Path::new(&authority), "InvalidContentType. The port may be one without TLS"),
    ] {
        let site = Site::bare();
        let relay = trusting(relay_command(&site, &prefix(), url, "r"), authority);
        let (code, error) = site.refused(relay);
        assert!(code == 69 && error.contains(why), "{url}: {code} {error}");
        assert_eq!(error.contains("SSL_CERT_FILE"), error.contains("certificate"), "{error}");
    }
    let site = Site::bare();
    let serve = site.serve(&["--broker", &url(), "--broker-prefix", &prefix()]);
    let daemon = site.spawn(trusting(serve, &other)).ready();
    wait_said(&daemon, "UnknownIssuer");
    assert_eq!(site.ask("READY"), "NOJOBS\n");
}

fn make_authority(certificate: &Path) {
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=another"]);
    openssl.arg("-keyout").arg(certificate.with_extension("key")).arg("-out").arg(certificate);
    let made = openssl.output().unwrap();
    assert!(made.status.success(), "{made:?}");
}
