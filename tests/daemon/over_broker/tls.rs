//! Connections to the broker by TLS: certificates that are the broker's, and such as are not.

use std::path::Path;

use super::{Installation, prefix};
use crate::common::{Site, wait_until};

fn variable(name: &str) -> String {
    let found = std::env::var(name);
    found.expect("this test is for the broker that tests/broker-server.sh starts")
}

/// The broker's URL; its certificate is for `localhost`.
fn url() -> String {
    variable("SHIFTBOSS_TEST_BROKER_TLS")
}

/// How a relay that trusts a file of authorities is refused.
fn refused(url: &str, authorities: &Path) -> (i32, String) {
    let site = Site::bare();
    let mut command = site.program();
    command.args(["relay", "--broker-prefix", &prefix(), url]).args([site.input(), site.socket()]);
    command.env("SSL_CERT_FILE", authorities).env_remove("SSL_CERT_DIR");
    site.refused(command)
}

/// Who trusts the authority has all that there is without TLS.
#[test]
fn a_broker_with_the_right_certificate() {
    let authority = variable("SHIFTBOSS_TEST_BROKER_CA");
    let (far, near, prefix) = (Site::bare(), Site::bare(), prefix());
    let mut serve = near.serve(&["--broker", &url(), "--broker-prefix", &prefix]);
    serve.env("SSL_CERT_FILE", &authority);
    let daemon = near.spawn(serve).ready();
    let installation = Installation { daemon, site: near, prefix };
    installation.wait_served();
    let mut relay = far.program();
    relay.args(["relay", "--broker-prefix", &installation.prefix, &url()]);
    relay.args([far.input(), far.socket()]).env("SSL_CERT_FILE", &authority);
    let _relay = far.spawn(relay).ready();
    let lines: String = (0..1_000).map(|key| format!("key-{key} 1\n")).collect();
    far.write("f.1.txt", lines);
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
    let plain = super::broker().replace("amqp://", "amqps://");
    for (url, authority, why) in [
        (&url(), other.as_path(), "UnknownIssuer"),
        (&elsewhere, Path::new(&authority), "not valid for name"),
        (&plain, Path::new(&authority), "InvalidContentType. The port may be one without TLS"),
    ] {
        let (code, error) = refused(url, authority);
        assert!(code == 69 && error.contains(why), "{url}: {code} {error}");
        assert_eq!(error.contains("SSL_CERT_FILE"), error.contains("certificate"), "{error}");
    }
    let site = Site::bare();
    let mut serve = site.serve(&["--broker", &url(), "--broker-prefix", &prefix()]);
    serve.env("SSL_CERT_FILE", &other);
    let daemon = site.spawn(serve).ready();
    wait_until("it is said", || daemon.log().contains("UnknownIssuer"));
    assert_eq!(site.ask("READY"), "NOJOBS\n");
}

fn make_authority(certificate: &Path) {
    let mut openssl = std::process::Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=another"]);
    openssl.arg("-keyout").arg(certificate.with_extension("key")).arg("-out").arg(certificate);
    let made = openssl.output().unwrap();
    assert!(made.status.success(), "{made:?}");
}
