//! The families about TLS and about names, which others count.

use super::collect::{Number, Scrape, Values, known, one};
use super::family::Family;
use super::labels::{LOOKUPS, RENEWALS};
use crate::tls::{HandshakeResult, UpstreamTls};

/// The samples of one of these families.
pub(super) fn values<'a>(scrape: &Scrape<'a>, family: Family) -> Vec<(Values<'a>, Number)> {
    let snapshot = scrape.snapshot;
    match family {
        Family::TlsHandshakes => scrape
            .listeners()
            .filter_map(|(name, listener)| Some((name, listener.handshakes?)))
            .flat_map(|(name, counts)| labelled(Some(name), &HandshakeResult::LABELS, counts))
            .collect(),
        Family::UpstreamTlsHandshakes => {
            let upstreams = snapshot.upstreams.iter().enumerate();
            let upstreams = upstreams.filter_map(|(index, upstream)| {
                Some((scrape.upstream(index)?, upstream.handshakes?))
            });
            upstreams
                .flat_map(|(name, counts)| labelled(Some(name), &UpstreamTls::LABELS, counts))
                .collect()
        }
        Family::TlsHandshakesInProgress => known(snapshot.handshakes),
        Family::TlsCertificateEnd => {
            let each = |(path, end): &'a (String, u64)| (vec![path.as_str()], Number::Whole(*end));
            snapshot.certificates.iter().map(each).collect()
        }
        Family::TlsReloads => labelled(None, RENEWALS, snapshot.tls_reloads).collect(),
        Family::TlsReloadFailing => one(snapshot.tls_failing.into()),
        Family::DnsLookups => labelled(None, LOOKUPS, snapshot.lookups).collect(),
        Family::DnsStale => one(Number::Whole(snapshot.stale_answers)),
        _ => Vec::new(),
    }
}

/// One sample for each result.
fn labelled<'a, const N: usize>(
    name: Option<&'a str>,
    labels: &'static [&'static str],
    counts: [u64; N],
) -> impl Iterator<Item = (Values<'a>, Number)> {
    labels.iter().zip(counts).map(move |(label, count)| {
        (name.into_iter().chain([*label]).collect(), Number::Whole(count))
    })
}
