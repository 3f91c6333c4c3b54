//! What is shown of an upstream.

use seawall::{HeaderCondition, HeaderTest, Meaning};
use serde_json::{Value, json};

use super::super::balance::Sharing;
use super::super::credentials::CredentialFile;
use super::super::health::{HealthCheck, Probe};
use super::super::host_header::HostHeader;
use super::super::model::{OnAbandon, Protocol, Upstream, UpstreamTimeouts};
use super::super::rules::{MEANINGS, Rules};
use super::super::tls::{RootsOf, UpstreamTls};
use super::policies::{
    breaker, budget, bulkhead, hedge, off, outlier, rates, retry, slow_start, statuses,
};
use super::{MASK, path, time, version};

pub(super) fn upstream(upstream: &Upstream) -> Value {
    let Upstream {
        // It is the key.
        name: _,
        endpoints,
        protocol,
        tls,
        credentials,
        max_connections,
        host_header,
        timeouts,
        retry,
        budget,
        hedge,
        // As the stack is given it: with what is slow where nobody said it.
        breaker: _,
        rate,
        bulkhead,
        sharing: Sharing { balance, outlier, slow_start },
        rules,
        health_check,
        on_abandon,
        send_deadline,
    } = upstream;
    let scheme = if tls.is_some() { "https://" } else { "http://" };
    let endpoint = |at: &super::super::EndpointAddress| match at {
        super::super::EndpointAddress::Tcp { .. } => format!("{scheme}{at}"),
        super::super::EndpointAddress::Unix(_) => at.to_string(),
    };
    json!({
        "endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>(),
        "protocol": match protocol {
            Protocol::Http1 => "http1",
            Protocol::H2c if tls.is_some() => "h2",
            Protocol::H2c => "h2c",
        },
        "tls": tls.as_ref().map(upstream_tls),
        "credentials": credentials.as_ref().map(|(file, _)| credential(file)),
        "max_connections": max_connections,
        "host_header": match host_header {
            HostHeader::Keep => "keep".to_owned(),
            HostHeader::Endpoint => "endpoint".to_owned(),
            HostHeader::Named(host) => String::from_utf8_lossy(host.as_bytes()).into_owned(),
        },
        "timeouts": self::timeouts(timeouts),
        "retry": off(retry.as_ref(), self::retry),
        "retry_budget": off(budget.as_ref(), self::budget),
        "hedge": off(hedge.as_ref(), self::hedge),
        "breaker": off(upstream.stack_config().breaker.as_ref(), breaker),
        "rate": rates(rate),
        "bulkhead": self::bulkhead(bulkhead),
        "balance": balance.as_str(),
        "outlier": off(outlier.as_ref(), self::outlier),
        "slow_start": off(slow_start.as_ref(), self::slow_start),
        "rules": self::rules(rules),
        "health_check": health_check.as_ref().map(self::health_check),
        "on_abandon": match (on_abandon, protocol) {
            (Some(OnAbandon::Finish), _) | (None, Protocol::Http1) => "finish",
            (Some(OnAbandon::Cancel), _) | (None, Protocol::H2c) => "cancel",
        },
        "send_deadline": send_deadline,
    })
}

fn upstream_tls(tls: &UpstreamTls) -> Value {
    let UpstreamTls { ca, server_name, client, min_version } = tls;
    json!({
        "ca": match ca {
            RootsOf::System => "system".to_owned(),
            RootsOf::File(file) => path(file),
        },
        "server_name": server_name,
        "client_cert": client.as_ref().map(|files| path(&files.cert)),
        "client_key": client.as_ref().map(|files| path(&files.key)),
        "min_version": version(*min_version),
    })
}

/// Where the secret is; never the secret.
fn credential(file: &CredentialFile) -> Value {
    let CredentialFile { path: file, header, scheme, timeout, replaces } = file;
    json!({
        "file": path(file),
        "header": header.as_str(),
        "scheme": scheme.as_deref().unwrap_or("none"),
        "timeout": time(*timeout),
        "override": replaces,
    })
}

fn timeouts(timeouts: &UpstreamTimeouts) -> Value {
    let UpstreamTimeouts { connect, checkout, attempt, total, idle, body } = timeouts;
    json!({
        "connect": time(*connect),
        "checkout": time(*checkout),
        "attempt": time(*attempt),
        "total": time(*total),
        "idle": time(*idle),
        "body": body.map(time),
    })
}

fn rules(rules: &Rules) -> Vec<Value> {
    let Rules { names, rules } = rules;
    let word = |means: Meaning| MEANINGS.iter().find(|(_, it)| *it == means).map(|(word, _)| *word);
    let rule = |(name, rule): (&String, &seawall::HttpRule)| {
        json!({
            "name": name,
            "status": statuses(rule.statuses()),
            "headers": rule.headers().iter().map(condition).collect::<Vec<_>>(),
            "body": rule.body().map(|(pointer, equals)| json!({
                "pointer": pointer,
                "equals": equals.iter().map(|_| MASK).collect::<Vec<_>>(),
            })),
            "means": word(rule.means()),
        })
    };
    names.iter().zip(rules.rules()).map(rule).collect()
}

/// What a field must be; a value may be somebody's key.
pub(super) fn condition(condition: &HeaderCondition) -> Value {
    let name = condition.name.as_str();
    match &condition.test {
        HeaderTest::Exact(_) => json!({"name": name, "exact": MASK}),
        HeaderTest::Prefix(_) => json!({"name": name, "prefix": MASK}),
        HeaderTest::Present => json!({"name": name, "present": true}),
        HeaderTest::Absent => json!({"name": name, "present": false}),
    }
}

fn health_check(check: &HealthCheck) -> Value {
    let HealthCheck { probe, interval, timeout, unhealthy, healthy, port } = check;
    let (path, passes, service) = match probe {
        Probe::Http { target, statuses } => {
            let query = if target.query().is_some() { format!("?{MASK}") } else { String::new() };
            (Some(format!("{}{query}", target.path())), self::statuses(statuses), None)
        }
        Probe::Grpc { service } => (None, Vec::new(), Some(service)),
    };
    json!({
        "path": path,
        "grpc_service": service,
        "interval": time(*interval),
        "timeout": time(*timeout),
        "unhealthy": unhealthy,
        "healthy": healthy,
        "status": passes,
        "port": port,
    })
}
