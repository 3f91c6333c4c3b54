//! A credential from a file: sent with every attempt, and read again when it is rejected.

use crate::support::*;

/// An upstream that takes only this token.
async fn guarded(token: &str) -> (std::net::SocketAddr, Arrivals) {
    let known = format!("Bearer {token}");
    Upstream::scripted(Protocol::Http1, move |_, arrival| {
        let is_known = carried(arrival) == Some(known.as_str());
        answer(if is_known { 200 } else { 401 }, "")
    })
    .await
}

/// Where a test has its token.
fn place(name: &str) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("seawall-token-{}-{name}", std::process::id()))
}

fn carried(arrival: &Arrival) -> Option<&str> {
    arrival.headers.get("authorization")?.to_str().ok()
}

fn all_carried(arrivals: &Arrivals) -> Vec<String> {
    arrivals.lock().unwrap().iter().filter_map(carried).map(str::to_owned).collect()
}

#[tokio::test]
async fn a_rejected_token_is_read_again_and_the_call_made_once_more_with_the_new_one() {
    let file = place("again");
    std::fs::write(&file, "old\n").unwrap();
    let (upstream, arrivals) = guarded("new").await;
    let keys = format!("credentials: {{file: '{}'}}, retry: off", file.display());
    let gateway = Setup::new(upstream).upstream(&keys).start().await;
    std::fs::write(&file, "new\n").unwrap();
    let answered = gateway.get("/").await;
    assert_eq!((answered.status, answered.header("seawall-attempts")), (200, Some("2")));
    assert_eq!(gateway.get("/").await.status, 200);
    assert_eq!(all_carried(&arrivals), ["Bearer old", "Bearer new", "Bearer new"]);
    std::fs::remove_file(&file).unwrap();
    let metrics = gateway.metrics().await;
    let count = |result| metrics.count("seawall_credential_refreshes_total", &[("result", result)]);
    assert_eq!((count("renewed"), count("unchanged"), count("failed")), (1, 0, 0));
}

#[tokio::test]
async fn the_same_token_again_is_none_and_the_rejection_goes_up_after_one_attempt() {
    let file = place("same");
    std::fs::write(&file, "old").unwrap();
    let (upstream, arrivals) = guarded("new").await;
    let keys = format!("credentials: {{file: '{}'}}", file.display());
    let gateway = Setup::new(upstream).upstream(&keys).start().await;
    let answered = gateway.get("/").await;
    assert_eq!((answered.status, answered.header("seawall-attempts")), (401, Some("1")));
    assert_eq!(all_carried(&arrivals), ["Bearer old"]);
    std::fs::remove_file(&file).unwrap();
    let unchanged = [("result", "unchanged")];
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.count("seawall_credential_refreshes_total", &unchanged), 1);
}

#[tokio::test]
async fn a_callers_own_stays_and_its_rejection_is_final_unless_it_is_overridden() {
    let file = place("theirs");
    std::fs::write(&file, "ours").unwrap();
    for (keys, status, expected) in
        [("", 401, "Bearer theirs"), (", override: true", 200, "Bearer ours")]
    {
        let (upstream, arrivals) = guarded("ours").await;
        let keys = format!("credentials: {{file: '{}'{keys}}}", file.display());
        let gateway = Setup::new(upstream).upstream(&keys).start().await;
        let mut request = get("/");
        request.headers_mut().insert("authorization", "Bearer theirs".parse().unwrap());
        assert_eq!(gateway.send(request).await.status, status);
        assert_eq!(all_carried(&arrivals), [expected]);
    }
    std::fs::remove_file(&file).unwrap();
}
