//! TLS to a server that has it: what each `sslmode` accepts, and how a refusal is reported.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use shiftboss_queue::error::StoreError;
use shiftboss_testbed::server::{ADMIN, PostgresServer};
use tokio::time::{Instant, sleep};

use crate::stores::Database;
use crate::stores::postgres::Server;

const PATIENCE: Duration = Duration::from_secs(30);

fn server(text: &str) -> Server {
    match Database::from(std::path::PathBuf::from(text)) {
        Database::Server(url) => Server::new(&url).unwrap(),
        Database::File(_) => panic!("{text} is no URL of a server"),
    }
}

async fn plain(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

fn wait_for<T>(asked: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(asked)
}

const GLANCE: Duration = Duration::from_millis(20);
const IS_SECURE: &str = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";

/// Gives the server a self-signed certificate for the host `localhost`. Debian's server comes with openssl.
fn certify(home: &Path) {
    let (owner, [key, certificate]) =
        (fs::metadata(home).unwrap(), ["key.pem", "cert.pem"].map(|name| home.join(name)));
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-nodes", "-newkey", "ec", "-subj", "/CN=localhost"]);
    openssl.args(["-pkeyopt", "ec_paramgen_curve:prime256v1"]);
    openssl.args(["-addext", "subjectAltName=DNS:localhost"]);
    openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
    let made = openssl.arg("-keyout").arg(&key).arg("-out").arg(&certificate).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    for file in [key, certificate] {
        chown(file, Some(owner.uid()), Some(owner.gid())).unwrap();
    }
}

/// Whether a connection by this URL is by TLS.
async fn is_secure(url: &str) -> Result<bool, StoreError> {
    let client = server(url).connect().await?;
    Ok(client.query_one(IS_SECURE, &[]).await.unwrap().get(0))
}

/// A server without TLS is refused where it is required; one with it must be the URL's host by a certificate that is
/// trusted where that is asked for.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn tls_is_what_the_url_asks_for() {
    let port = TcpListener::bind("localhost:0").unwrap().local_addr().unwrap().port();
    let (listen, at) = ("listen_addresses=localhost", format!("port={port}"));
    let server = PostgresServer::start(&[listen, &at]).unwrap();
    let url = |host: &str, mode: &str| {
        format!("postgres://{ADMIN}@{host}:{port}/postgres?sslmode={mode}")
    };
    let trusting = format!("verify-full&sslrootcert={}/cert.pem", server.home().display());
    let refused = |told: Result<bool, StoreError>, words: &str| {
        assert!(matches!(&told, Err(StoreError::Busy(text)) if text.contains(words)), "{told:?}");
    };
    wait_for(async {
        assert_eq!(is_secure(&url("localhost", "prefer")).await, Ok(false));
        refused(is_secure(&url("localhost", "require")).await, "ssl = on");

        certify(server.home());
        let outside = plain(&url("localhost", "disable")).await;
        for (name, value) in [("cert_file", "cert.pem"), ("key_file", "key.pem")] {
            let file = server.home().join(value);
            let set = format!("ALTER SYSTEM SET ssl_{name} = '{}'", file.display());
            outside.batch_execute(&set).await.unwrap();
        }
        outside.batch_execute("ALTER SYSTEM SET ssl = on").await.unwrap();
        outside.batch_execute("SELECT pg_reload_conf()").await.unwrap();
        let end = Instant::now() + PATIENCE;
        while is_secure(&url("localhost", "prefer")).await != Ok(true) {
            assert!(Instant::now() < end, "{}", server.log());
            sleep(GLANCE).await;
        }

        assert_eq!(is_secure(&url("localhost", "disable")).await, Ok(false));
        assert_eq!(is_secure(&url("localhost", "require")).await, Ok(true));
        assert_eq!(is_secure(&url("localhost", &trusting)).await, Ok(true));
        refused(is_secure(&url("localhost", "verify-full")).await, "sslrootcert");
        refused(is_secure(&url("127.0.0.1", &trusting)).await, "sslrootcert");
    });
}
