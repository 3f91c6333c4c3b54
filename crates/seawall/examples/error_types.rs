//! Which error a client really throws: provokes some, walks their sources, and says what the rules
//! make of them. See docs/error-types.md.
//!
//! `cargo run -p seawall --example error_types --features reqwest,redis,postgres`

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::any::type_name;
use std::error::Error;
use std::io;
use std::sync::Arc;

use seawall::{
    ErrorCause, Outcome, PostgresError, ReqwestErrors, TransportErrors, classify_postgres,
    redis_outcome,
};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

type Failure = Box<dyn Error>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let nobody = nobody_listens().await?;
    let hangs_up = hangs_up().await?;

    let client = reqwest::Client::builder().retry(reqwest::retry::never()).build()?;
    for address in [nobody, hangs_up] {
        let error = client.get(format!("http://127.0.0.1:{address}/")).send().await;
        tell(&error.err().ok_or("no error")?, |error| Outcome::of(ReqwestErrors.cause(error)));
    }

    for address in [nobody, hangs_up] {
        let client = redis::Client::open(format!("redis://127.0.0.1:{address}/"))?;
        let error = client.get_multiplexed_async_connection().await.err();
        tell(&error.ok_or("no error")?, redis_outcome);
    }

    for address in [nobody, hangs_up] {
        let config = format!("host=127.0.0.1 port={address} user=nobody");
        let error = tokio_postgres::connect(&config, tokio_postgres::NoTls).await.err();
        let error = PostgresError::Pool(error.ok_or("no error")?.into());
        let result = Err::<(), _>(error);
        if let Err(error) = &result {
            tell(error, |_| classify_postgres(&result));
        }
    }

    // What no rule knows is unknown, and says so.
    tell(&std::fmt::Error, |error| Outcome::of(TransportErrors.cause(error)));
    Ok(())
}

/// The error's own type, then of each source its type, if we know it, and what it says.
fn tell<E: Error + 'static>(error: &E, rules: impl Fn(&E) -> Outcome) {
    let outcome = rules(error);
    println!("{}: {error}", type_name::<E>());
    let mut next = error.source();
    while let Some(source) = next {
        println!("  {}: {source}", name(source));
        next = source.source();
    }
    println!("  = {}, {}\n", outcome.cause().as_str(), outcome.class().as_str());
}

/// A `dyn Error` does not know its type: it has to be tried for.
fn name(error: &(dyn Error + 'static)) -> &'static str {
    if error.is::<io::Error>() {
        type_name::<io::Error>()
    } else if error.is::<Arc<dyn Error + Send + Sync>>() {
        // What is within is none of its sources: take it out, then downcast.
        type_name::<Arc<dyn Error + Send + Sync>>()
    } else if error.is::<hyper::Error>() {
        type_name::<hyper::Error>()
    } else if error.is::<hyper_util::client::legacy::Error>() {
        type_name::<hyper_util::client::legacy::Error>()
    } else if error.is::<deadpool_postgres::PoolError>() {
        type_name::<deadpool_postgres::PoolError>()
    } else if error.is::<tokio_postgres::Error>() {
        type_name::<tokio_postgres::Error>()
    } else {
        "(a type that is not public)"
    }
}

/// A port that was just given back.
async fn nobody_listens() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0").await?.local_addr()?.port())
}

/// A port whose owner reads a little and closes.
async fn hangs_up() -> io::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 1024]).await;
        }
    });
    Ok(port)
}
