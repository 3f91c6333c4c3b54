//! Files that are good, bad, and renewed; what is told of them.

use std::path::{Path, PathBuf};

use rcgen::{CertificateParams, KeyPair};

use super::*;
use crate::config::GatewayConfig;
use crate::diagnostics::Diagnostics;
use crate::lines::tests::Page;

/// A folder of this test alone.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("seawall-tls-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A certificate for `localhost` and its key, valid until this year.
fn pair(until: i32) -> (String, String) {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(until, 1, 1);
    let key = KeyPair::generate().unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

fn yaml(tls: &str) -> String {
    format!(
        "version: 1\nlisteners: [{{address: 127.0.0.1:0, tls: {{{tls}}}}}]\n\
         upstreams: {{up: {{endpoints: ['http://127.0.0.1:1']}}}}\n"
    )
}

/// What the configuration says of these files.
fn refused(tls: &str) -> String {
    GatewayConfig::parse(&yaml(tls), "test").unwrap_err().to_string()
}

#[test]
fn what_cannot_be_used_is_told_with_its_file_and_what_is_allowed() {
    let folder = Folder::new("refused");
    let ((cert, key), (other, _)) = (pair(2100), pair(2100));
    let [cert, key, other] = [("c.pem", cert), ("k.pem", key), ("o.pem", other)]
        .map(|(name, text)| folder.write(name, &text));
    let empty = folder.write("empty.pem", "");
    let broken = folder.write("broken.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n");
    let no_der = folder
        .write("no_der.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let large = folder.write("large.pem", &"x".repeat((1 << 20) + 1));
    let missing = folder.0.join("missing.pem").display().to_string();
    for (tls, parts) in [
        (format!("cert: {cert}"), ["tls.key", "is missing"]),
        (format!("cert: {missing}, key: {key}"), ["tls.cert", "No such file"]),
        (format!("cert: {large}, key: {key}"), ["tls.cert", "larger than 1MiB"]),
        (format!("cert: {empty}, key: {key}"), ["tls.cert", "this one has none"]),
        (format!("cert: {broken}, key: {key}"), ["tls.cert", "a PEM file with certificates"]),
        (format!("cert: {no_der}, key: {key}"), ["tls.cert", "X.509"]),
        (format!("cert: {cert}, key: {empty}"), ["tls.key", "this one has none"]),
        (format!("cert: {cert}, key: {cert}"), ["tls.key", "this one has none"]),
        (format!("cert: {other}, key: {key}"), ["tls.key", "this is another's"]),
        (
            format!("cert: {cert}, key: {key}, certificates: [{{cert: {other}, key: {key}}}]"),
            ["tls.certificates[0].key", "this is another's"],
        ),
        (
            format!("cert: {cert}, key: {key}, client_ca: {empty}"),
            ["tls.client_ca", "this one has none"],
        ),
        (
            format!("cert: {cert}, key: {key}, client_auth: optional"),
            ["tls.client_auth", "without `client_ca`"],
        ),
        (format!("cert: {cert}, key: {key}, min_version: 1.1"), ["min_version", "1.2 or 1.3"]),
        (format!("cert: {cert}, key: {key}, alpn: [h3]"), ["alpn[0]", "h2 or http/1.1"]),
        (format!("cert: {cert}, key: {key}, alpn: [h2, h2]"), ["alpn[1]", "once"]),
    ] {
        let told = refused(&tls);
        for part in parts {
            assert!(told.contains(part), "{tls}: {told}");
        }
    }
}

#[test]
fn a_certificate_out_of_its_time_is_warned_of() {
    let folder = Folder::new("expired");
    let (cert, key) = pair(2001);
    let files =
        format!("cert: {}, key: {}", folder.write("c.pem", &cert), folder.write("k.pem", &key));
    let (_, warnings) = GatewayConfig::parse(&yaml(&files), "test").unwrap();
    let told: Vec<_> = warnings.iter().map(ToString::to_string).collect();
    assert!(told.iter().any(|it| it.contains("has expired")), "{told:?}");
}

#[test]
fn tls_to_an_upstream_is_checked_where_it_is_written() {
    let folder = Folder::new("upstream");
    let (cert, _) = pair(2100);
    let (cert, empty) = (folder.write("c.pem", &cert), folder.write("empty.pem", ""));
    for (upstream, part) in [
        (format!("endpoints: ['http://h:1'], tls: {{ca: {cert}}}"), "without `https` endpoints"),
        (format!("endpoints: ['https://h:1'], tls: {{ca: {empty}}}"), "this one has none"),
        (
            format!("endpoints: ['https://h:1'], protocol: h2c, tls: {{ca: {cert}}}"),
            "h2c is HTTP/2 without TLS",
        ),
        (
            format!("endpoints: ['https://h:1', 'http://h:2'], tls: {{ca: {cert}}}"),
            "with TLS, or none",
        ),
        (
            format!("endpoints: ['https://h:1', 'unix:/run/a.sock'], tls: {{ca: {cert}}}"),
            "with TLS, or none",
        ),
        (
            format!("endpoints: ['https://h:1'], tls: {{ca: {cert}, client_cert: {cert}}}"),
            "without `client_key`",
        ),
        (
            format!("endpoints: ['https://h:1'], tls: {{ca: {cert}, server_name: 'a b'}}"),
            "a host name",
        ),
    ] {
        let yaml = format!("version: 1\nupstreams: {{up: {{{upstream}}}}}\n");
        let told = GatewayConfig::parse(&yaml, "test").unwrap_err().to_string();
        assert!(told.contains(part), "{upstream}: {told}");
    }
}

/// A store for one listener with these files.
fn store(cert: &str, key: &str) -> (Arc<TlsStore>, Page, Diagnostics) {
    let page = Page::default();
    let diagnostics = Diagnostics::to(page.clone(), false, Clock::new()).unwrap();
    let (config, _) =
        GatewayConfig::parse(&yaml(&format!("cert: {cert}, key: {key}")), "test").unwrap();
    let store = TlsStore::load(&config, diagnostics.clone(), Clock::new()).unwrap();
    (store, page, diagnostics)
}

#[tokio::test]
async fn a_reload_tells_what_it_did_and_what_it_could_not() {
    let folder = Folder::new("reload");
    let ((cert, key), (second, second_key)) = (pair(2100), pair(2101));
    let [cert, key] = [("c.pem", cert), ("k.pem", key)].map(|(name, it)| folder.write(name, &it));
    let (store, page, diagnostics) = store(&cert, &key);
    let end = |store: &TlsStore| store.certificates()[0].not_after;
    let first_end = end(&store);
    assert_eq!(store.look().changed, 0, "nothing is new");
    folder.write("c.pem", &second);
    let failed = store.look().failed;
    assert!(failed[0].starts_with("listeners[0].tls.key "), "{failed:?}");
    assert!(store.is_failing());
    assert_eq!(end(&store), first_end);
    std::fs::remove_file(Path::new(&key)).unwrap();
    assert!(store.look().failed[0].contains("No such file"));
    folder.write("k.pem", &second_key);
    assert_eq!(store.look().changed, 1);
    assert!(!store.is_failing());
    assert_eq!(end(&store), first_end.map(|it| it + 365 * 86_400));
    assert_eq!(store.reloads(), (1, 2));
    assert!(diagnostics.close().await);
    let text = page.text();
    assert!(
        text.contains(" ERROR certificates not renewed; the last good ones stay of="),
        "{text}"
    );
    assert!(text.contains("this is another's"), "{text}");
    assert!(text.contains(" INFO certificates renewed of="), "{text}");
    assert!(text.contains("not_after=2101-01-01T00:00:00.000Z"), "{text}");
}

#[tokio::test]
async fn what_cannot_be_used_is_told_of_and_counted_once() {
    let folder = Folder::new("once");
    let ((cert, key), (second, second_key)) = (pair(2100), pair(2101));
    let [cert, key] = [("c.pem", cert), ("k.pem", key)].map(|(name, it)| folder.write(name, &it));
    let (store, page, diagnostics) = store(&cert, &key);
    folder.write("c.pem", &second);
    assert_eq!(store.look().failed.len(), 1, "the key is another's");
    assert!(store.is_failing());
    folder.write("k.pem", &second_key);
    assert_eq!(store.look().changed, 1);
    assert!(!store.is_failing());
    folder.write("k.pem", "");
    for _ in 0..2 {
        assert_eq!(store.look().failed.len(), 1, "it stays as it is");
        assert!(store.is_failing());
    }
    // Whoever asks, too.
    assert_eq!(Arc::clone(&store).reload().await.failed.len(), 1);
    assert_eq!(store.reloads(), (1, 2), "counted once");
    assert!(diagnostics.close().await);
    assert_eq!(page.text().matches("certificates not renewed").count(), 2, "{}", page.text());
}

#[tokio::test(start_paused = true)]
async fn a_pipe_and_a_reading_that_hangs_hold_up_no_later_reload() {
    let folder = Folder::new("hangs");
    let ((cert, key), (second, second_key)) = (pair(2100), pair(2101));
    let [cert, key] = [("c.pem", cert), ("k.pem", key)].map(|(name, it)| folder.write(name, &it));
    let (store, _, _) = store(&cert, &key);
    std::fs::remove_file(&cert).unwrap();
    crate::file::pipe(Path::new(&cert));
    let failed = Arc::clone(&store).reload().await.failed;
    assert!(failed[0].contains("not a file"), "{failed:?}");
    std::fs::remove_file(&cert).unwrap();
    folder.write("c.pem", &second);
    folder.write("k.pem", &second_key);
    let hangs = store.hang();
    let failed = Arc::clone(&store).reload().await.failed;
    assert!(failed[0].contains("took longer than 5s"), "{failed:?}");
    assert_eq!((store.reloads(), store.is_failing()), ((0, 2), true));
    drop(hangs);
    assert_eq!(Arc::clone(&store).reload().await.changed, 1);
    assert!(!store.is_failing());
}
