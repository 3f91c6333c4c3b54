use seawall_policy::{Rng as _, SplitMix64};

use super::*;

fn whole(bytes: &[u8]) -> Option<(usize, Option<String>)> {
    match parse(bytes) {
        Ok(Read::Whole { length, client }) => Some((length, client.map(|it| it.to_string()))),
        Ok(Read::Part) => panic!("a part: {bytes:?}"),
        Err(NoHeader) => None,
    }
}

/// A header of version 2, with what follows the addresses.
fn binary(command: u8, family: u8, addresses: &[u8], more: &[u8]) -> Vec<u8> {
    let follow = u16::try_from(addresses.len() + more.len()).unwrap();
    let fixed = [&[command, family][..], &follow.to_be_bytes()].concat();
    [SIGNATURE, &fixed, addresses, more].concat()
}

const OF_4: [u8; 12] = [192, 0, 2, 7, 198, 51, 100, 1, 0x30, 0x39, 0x01, 0xbb];

fn of_6(source: &str) -> Vec<u8> {
    let source = source.parse::<Ipv6Addr>().unwrap().octets();
    [&source[..], &Ipv6Addr::LOCALHOST.octets(), &[0x30, 0x39, 0x01, 0xbb]].concat()
}

/// Good ones, and the clients they name.
fn good() -> Vec<(Vec<u8>, Option<&'static str>)> {
    let line = |line: &str| line.as_bytes().to_vec();
    let long = format!("PROXY UNKNOWN {}\r\n", "f".repeat(LINE_MAX - 16));
    assert_eq!(long.len(), LINE_MAX);
    vec![
        (line("PROXY TCP4 192.0.2.7 198.51.100.1 12345 443\r\n"), Some("192.0.2.7:12345")),
        (
            line("PROXY TCP4 255.255.255.255 255.255.255.255 65535 0\r\n"),
            Some("255.255.255.255:65535"),
        ),
        (line("PROXY TCP6 2001:db8::7 ::1 12345 443\r\n"), Some("[2001:db8::7]:12345")),
        (line("PROXY TCP6 ::ffff:192.0.2.7 ::1 12345 443\r\n"), Some("192.0.2.7:12345")),
        (line("PROXY UNKNOWN\r\n"), None),
        (line("PROXY UNKNOWN ff:ff::ff anything \t it likes\r\n"), None),
        (line(&long), None),
        (binary(PROXY, STREAM_4, &OF_4, &[]), Some("192.0.2.7:12345")),
        (binary(PROXY, STREAM_4, &OF_4, &[4, 0, 1, 9]), Some("192.0.2.7:12345")),
        (binary(PROXY, STREAM_4, &OF_4, &vec![0xff; FOLLOW_MAX - 12]), Some("192.0.2.7:12345")),
        (binary(PROXY, STREAM_6, &of_6("2001:db8::7"), &[]), Some("[2001:db8::7]:12345")),
        (binary(PROXY, STREAM_6, &of_6("::ffff:192.0.2.7"), &[]), Some("192.0.2.7:12345")),
        (binary(PROXY, STREAM_UNIX, &[b'/'; 216], &[]), None),
        (binary(PROXY, UNSPECIFIED, &[], &[1, 2, 3]), None),
        (binary(LOCAL, UNSPECIFIED, &[], &[]), None),
        (binary(LOCAL, STREAM_4, &OF_4, &[]), None),
        (binary(LOCAL, 0xff, &[], &[]), None),
    ]
}

#[test]
fn a_good_header_names_its_client_and_ends_where_it_ends() {
    for (header, client) in good() {
        let expected = Some((header.len(), client.map(str::to_owned)));
        assert_eq!(whole(&header), expected, "{header:?}");
        for behind in [&b"GET / HTTP/1.1\r\n"[..], b"\r\n", b"\x16\x03\x01", SIGNATURE] {
            assert_eq!(whole(&[&header[..], behind].concat()), expected, "{header:?}");
        }
    }
}

#[test]
fn every_part_of_a_good_header_is_a_part() {
    for (header, _) in good() {
        for cut in 0..header.len() {
            assert_eq!(parse(&header[..cut]), Ok(Read::Part), "{:?}", &header[..cut]);
        }
    }
}

#[test]
fn a_line_that_is_not_exactly_one_is_refused() {
    for line in [
        "PROXY TCP4 192.0.2.7 198.51.100.1 12345\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 12345 443 \r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 12345 443 5\r\n",
        "PROXY TCP4  192.0.2.7 198.51.100.1 12345 443\r\n",
        "PROXY TCP4\t192.0.2.7 198.51.100.1 12345 443\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 65536 443\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 +1 443\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 -1 443\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 01 443\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 1 0443\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1  443\r\n",
        "PROXY TCP4 192.0.02.7 198.51.100.1 1 443\r\n",
        "PROXY TCP4 192.0.2 198.51.100.1 1 443\r\n",
        "PROXY TCP4 2001:db8::7 ::1 1 443\r\n",
        "PROXY TCP4 192.0.2.7 ::1 1 443\r\n",
        "PROXY TCP6 192.0.2.7 198.51.100.1 1 443\r\n",
        "PROXY TCP6 2001:db8::7%eth0 ::1 1 443\r\n",
        "PROXY TCP6 [2001:db8::7] ::1 1 443\r\n",
        "PROXY tcp4 192.0.2.7 198.51.100.1 1 443\r\n",
        "PROXY TCP4 localhost localhost 1 443\r\n",
        "PROXY UDP4 192.0.2.7 198.51.100.1 1 443\r\n",
        "PROXY UNKNOWNS\r\n",
        "PROXY \r\n",
        "PROXY\r\n",
        "proxy TCP4 192.0.2.7 198.51.100.1 1 443\r\n",
        " PROXY TCP4 192.0.2.7 198.51.100.1 1 443\r\n",
        "GET / HTTP/1.1\r\n",
    ] {
        assert_eq!(parse(line.as_bytes()), Err(NoHeader), "{line}");
    }
    assert_eq!(parse(b"PROXY TCP4 \xff\xfe\r\n"), Err(NoHeader));
}

#[test]
fn a_line_without_an_end_is_refused_at_its_bound_and_waited_for_below() {
    let endless = [b"PROXY UNKNOWN ".as_slice(), &[b'x'; 200]].concat();
    assert_eq!(parse(&endless[..LINE_MAX - 1]), Ok(Read::Part));
    assert_eq!(parse(&endless[..LINE_MAX]), Err(NoHeader));
    // A lone LF ends no line, nor does an end beyond the bound.
    assert_eq!(parse(b"PROXY UNKNOWN\n"), Ok(Read::Part));
    let late = [&endless[..LINE_MAX - 1], b"\r\n"].concat();
    assert_eq!(parse(&late), Err(NoHeader));
}

#[test]
fn a_binary_header_is_refused_at_the_first_byte_that_cannot_be() {
    for (header, at) in [
        (binary(0x11, STREAM_4, &OF_4, &[]), 13),
        (binary(0x22, STREAM_4, &OF_4, &[]), 13),
        (binary(0x00, STREAM_4, &OF_4, &[]), 13),
        (binary(PROXY, 0x12, &OF_4, &[]), 14),
        (binary(PROXY, 0x41, &OF_4, &[]), 14),
        (binary(PROXY, STREAM_4, &OF_4[..11], &[]), 16),
        (binary(PROXY, STREAM_6, &OF_4, &[]), 16),
        (binary(PROXY, STREAM_UNIX, &[0; 215], &[]), 16),
        (binary(PROXY, STREAM_4, &OF_4, &vec![0; FOLLOW_MAX - 11]), 16),
        (binary(LOCAL, UNSPECIFIED, &[], &vec![0; FOLLOW_MAX + 1]), 16),
    ] {
        assert_eq!(parse(&header[..at - 1]), Ok(Read::Part), "{:?}", &header[..at]);
        assert_eq!(parse(&header[..at]), Err(NoHeader), "{:?}", &header[..at]);
        assert_eq!(parse(&header), Err(NoHeader));
    }
    let mut signature = SIGNATURE.to_vec();
    signature[11] = b'\r';
    assert_eq!(parse(&signature), Err(NoHeader));
}

/// Whatever comes: no panic, no client out of a broken length, a decision once made stays, and
/// nothing is waited for beyond the bounds.
#[test]
fn whatever_bytes_come_the_decision_is_bounded_and_never_changes() {
    let mut rng = SplitMix64::new(0x5ea);
    let seeds = good();
    for _ in 0..30_000 {
        let pick = usize::try_from(rng.below(seeds.len() as u64)).unwrap();
        let mut bytes = seeds[pick].0.clone();
        for _ in 0..=rng.below(4) {
            let at = usize::try_from(rng.below(bytes.len().max(1) as u64)).unwrap();
            let byte = u8::try_from(rng.below(256)).unwrap();
            match rng.below(4) {
                0 if at < bytes.len() => bytes[at] = byte,
                1 if at < bytes.len() => bytes[at] ^= 1 << rng.below(8),
                2 => bytes.insert(at, byte),
                _ => bytes.truncate(at),
            }
        }
        check_prefixes(&bytes);
    }
    for _ in 0..3_000 {
        let length = rng.below(300);
        let noise: Vec<u8> = (0..length).map(|_| u8::try_from(rng.below(256)).unwrap()).collect();
        check_prefixes(&noise);
        check_prefixes(&[SIGNATURE, &noise].concat());
        check_prefixes(&[WORD, &noise].concat());
    }
}

fn check_prefixes(bytes: &[u8]) {
    let mut decided = None;
    // Each of the first bytes, and then some: a decision of a long one is made of its first few.
    let cuts = (0..bytes.len().min(LINE_MAX + 20)).chain([bytes.len()]);
    for cut in cuts {
        let is = parse(&bytes[..cut]);
        match decided {
            None if is == Ok(Read::Part) => {
                assert!(cut < FIXED + FOLLOW_MAX, "it is waited for without a bound");
                let is_line = bytes.starts_with(WORD);
                assert!(!is_line || cut < LINE_MAX, "a line is waited for beyond its bound");
            }
            None => decided = Some(is),
            Some(before) => assert_eq!(is, before, "{:?}", &bytes[..cut]),
        }
        if let Ok(Read::Whole { length, .. }) = is {
            assert!(length <= cut);
        }
    }
}
