//! The admin port for other hosts, behind a token.

use std::net::SocketAddr;

use http::{Method, Request, header};
use seawall_gateway::GatewayConfig;

use crate::support::*;

const TOKEN: &str = "0123456789abcdef-e2e";

async fn start(admin: &str) -> Gateway {
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 1));
    let yaml = Setup::new(nowhere).yaml().replace("admin: {address: 127.0.0.1:0}", admin);
    let (config, _) = GatewayConfig::parse(&yaml, "test").unwrap_or_else(|errors| {
        panic!("{errors}");
    });
    assert!(!format!("{config:?}").contains(TOKEN));
    Gateway::start(config).await
}

async fn ask(
    gateway: &Gateway,
    host: &str,
    token: Option<&str>,
    (method, path): (Method, &str),
) -> Answer {
    let mut request = Request::new(full(bytes::Bytes::new()));
    *request.method_mut() = method;
    *request.uri_mut() = path.parse().unwrap();
    request.headers_mut().insert(header::HOST, host.parse().unwrap());
    if let Some(token) = token {
        let shown = format!("Bearer {token}").parse().unwrap();
        request.headers_mut().insert(header::AUTHORIZATION, shown);
    }
    let address = SocketAddr::from(([127, 0, 0, 1], gateway.admin_port()));
    Caller::connect(address, Protocol::Http1).await.send(request).await
}

#[tokio::test]
async fn on_every_address_a_token_is_asked_for_and_any_name_is_answered() {
    let gateway = start(&format!("admin: {{address: '0.0.0.0:0', token: {TOKEN}}}")).await;
    let named = "seawall-1.example.com:9901";
    let metrics = (Method::GET, "/metrics");
    for path in ["/ready", "/livez", "/healthz"] {
        assert_eq!(ask(&gateway, named, None, (Method::GET, path)).await.status, 200, "{path}");
    }
    for token in [None, Some("0123456789abcdef-e2f")] {
        let told = ask(&gateway, named, token, metrics.clone()).await;
        assert_eq!(told.status, 401);
        assert_eq!(told.headers[header::WWW_AUTHENTICATE], "Bearer");
        assert!(!told.text().contains("0123456789abcdef"), "{}", told.text());
    }
    let dump = (Method::GET, "/config_dump");
    assert_eq!(ask(&gateway, named, None, dump.clone()).await.status, 401);
    let told = ask(&gateway, named, Some(TOKEN), dump).await;
    assert_eq!(told.status, 200);
    assert!(told.text().contains("\"token\":\"***\""), "{}", told.text());
    assert!(!told.text().contains(TOKEN));
    let off = (Method::PUT, "/retries?state=off&ttl=1m");
    assert_eq!(ask(&gateway, named, None, off.clone()).await.status, 401);
    assert_eq!(ask(&gateway, named, Some(TOKEN), off).await.status, 200);
    let told = ask(&gateway, named, Some(TOKEN), metrics).await;
    assert_eq!(told.status, 200);
    let counted = "seawall_admin_unauthorized_total 4";
    assert!(told.text().lines().any(|line| line == counted), "{}", told.text());
    assert!(!told.text().contains(TOKEN));
}

#[tokio::test]
async fn metrics_are_for_everybody_if_said_and_on_loopback_a_foreign_name_is_refused() {
    let keys = "address: '127.0.0.1:0', open_metrics: true";
    let gateway = start(&format!("admin: {{{keys}, token: {TOKEN}}}")).await;
    let metrics = (Method::GET, "/metrics");
    assert_eq!(ask(&gateway, "localhost", None, metrics.clone()).await.status, 200);
    let upstreams = (Method::GET, "/upstreams");
    assert_eq!(ask(&gateway, "localhost", None, upstreams.clone()).await.status, 401);
    assert_eq!(ask(&gateway, "localhost", Some(TOKEN), upstreams.clone()).await.status, 200);
    assert_eq!(ask(&gateway, "rebound.test", Some(TOKEN), upstreams).await.status, 403);
    assert_eq!(ask(&gateway, "rebound.test", None, metrics).await.status, 403);
}
