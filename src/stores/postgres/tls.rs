//! TLS to the server: what the URL's `sslmode` and `sslrootcert` mean, and a connector that holds to it.
//!
//! The library knows the modes disable, prefer and require; this module decides which certificates to trust. As with
//! PostgreSQL's own programs, only `verify-full` proves that it is the right server. Used where a connection is
//! prepared.

use std::path::PathBuf;
use std::sync::Arc;

use percent_encoding::percent_decode_str;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// Any server.
    Anybody,
    /// The host of the URL, by the machine's root certificates.
    Host,
    /// The host of the URL, by those of this file.
    HostBy(PathBuf),
}

/// A URL in the form that the library takes, and its settings of trust.
pub(super) fn take_trust(url: &str) -> Result<(String, Trust), String> {
    if url.matches('@').count() > 1 {
        return Err(
            "there is more than one @: write those of a name or a password as %40".to_owned()
        );
    }
    let Some((place, parameters)) = url.split_once('?') else {
        return Ok((url.to_owned(), Trust::Anybody));
    };
    // The library would take the last one.
    if parameters.split('&').filter(|parameter| parameter.starts_with("sslmode=")).count() > 1 {
        return Err("there is more than one sslmode".to_owned());
    }
    let (mut kept, mut verifies, mut file) = (Vec::new(), false, None);
    for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
        match parameter.split_once('=') {
            Some(("sslmode", "verify-full")) => {
                verifies = true;
                kept.push("sslmode=require");
            }
            Some(("sslmode", mode)) if !["disable", "prefer", "require"].contains(&mode) => {
                return Err("sslmode is disable, prefer, require or verify-full".to_owned());
            }
            Some(("sslrootcert", path)) => {
                let path = percent_decode_str(path).decode_utf8();
                file = Some(PathBuf::from(&*path.map_err(|error| error.to_string())?));
            }
            _ => kept.push(parameter),
        }
    }
    let trust = match (verifies, file) {
        (true, Some(file)) => Trust::HostBy(file),
        (true, None) => Trust::Host,
        (false, None) => Trust::Anybody,
        (false, Some(_)) => return Err("sslrootcert is for sslmode=verify-full".to_owned()),
    };
    Ok((format!("{place}?{}", kept.join("&")), trust))
}

pub(super) fn connector(trust: Trust) -> Result<MakeRustlsConnect, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let config = match trust {
        Trust::Anybody => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider)))
        }
        Trust::Host => {
            builder.with_root_certificates(roots(rustls_native_certs::load_native_certs().certs))
        }
        Trust::HostBy(file) => {
            let failed =
                |error| format!("cannot read the root certificates of {}: {error}", file.display());
            let read = CertificateDer::pem_file_iter(&file).and_then(Iterator::collect);
            let read: Vec<_> = read.map_err(failed)?;
            if read.is_empty() {
                return Err(format!("there is no certificate in {}", file.display()));
            }
            builder.with_root_certificates(roots(read))
        }
    };
    Ok(MakeRustlsConnect::new(config.with_no_client_auth()))
}

fn roots(certificates: Vec<CertificateDer<'static>>) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates);
    roots
}

/// Takes any certificate, as `sslmode=prefer` and `require` do: that prevents passive eavesdropping, but does not
/// authenticate the server.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Trust is taken out of the URL, and what contradicts itself is refused.
    #[test]
    fn trust_is_read() {
        let taken = |url: &str| take_trust(url).map(|(url, trust)| (url, format!("{trust:?}")));
        let ok = |url: &str, trust: &str| Ok((url.to_owned(), trust.to_owned()));
        assert_eq!(taken("postgres://h/d"), ok("postgres://h/d", "Anybody"));
        let required = "postgres://h/d?sslmode=require";
        assert_eq!(taken(required), ok(required, "Anybody"));
        assert_eq!(taken("postgres://h/d?sslmode=verify-full"), ok(required, "Host"));
        let file = "postgres://h/d?sslrootcert=%2Fa%20b.pem&sslmode=verify-full&connect_timeout=3";
        let plain = "postgres://h/d?sslmode=require&connect_timeout=3";
        assert_eq!(taken(file), ok(plain, "HostBy(\"/a b.pem\")"));
        for (wrong, why) in [
            ("postgres://h/d?sslmode=verify-ca", "verify-full"),
            ("postgres://h/d?sslmode=verify-full&sslmode=disable", "more than one"),
            ("postgres://h/d?sslrootcert=a", "verify-full"),
            ("postgres://h/d?sslmode=verify-full&sslrootcert=%ff", "utf-8"),
            ("postgres://u:p@ss@h/d", "%40"),
        ] {
            assert!(taken(wrong).unwrap_err().contains(why), "{wrong}");
        }
    }

    /// A file without a certificate is named.
    #[test]
    fn root_certificates_are_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let refused = |path: PathBuf| connector(Trust::HostBy(path)).err().unwrap();
        assert!(refused(file.path().to_owned()).contains("there is no certificate in"));
        assert!(refused("/nowhere.pem".into()).contains("/nowhere.pem"));
        assert!(connector(Trust::Anybody).is_ok() && connector(Trust::Host).is_ok());
    }
}
