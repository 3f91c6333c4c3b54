//! What is done with each connection that a listener accepts, until it is served: who it comes from
//! is found out, and whether it is let in.

use std::future::Future;
use std::sync::Arc;

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use seawall::Clock;
use seawall_policy::DoorRefusal;
use tokio::sync::{Notify, OwnedSemaphorePermit, watch};

use super::conn;
use super::door::Door;
use super::drain::{DrainPhase, DrainView};
use super::gauges::{CloseReason, ConnectionGauges, Introducing};
use super::listener::Peer;
use super::proxied::introduce;
use super::state::{ConnGuard, ConnInfo, ConnParts};
use crate::wire::Wire;

/// What the connections of one listener have in common.
#[derive(Clone)]
pub(super) struct Reception<H> {
    /// Its number.
    pub(super) listener: usize,
    pub(super) door: Arc<Door>,
    pub(super) drain: watch::Receiver<DrainView>,
    pub(super) clock: Clock,
    pub(super) gauges: Arc<ConnectionGauges>,
    pub(super) changed: Arc<Notify>,
    pub(super) handler: H,
}

impl<H, F, B> Reception<H>
where
    H: Fn(Request<Incoming>, ConnInfo) -> F + Clone + Send + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// Takes a connection; returns at once.
    pub(super) fn take(&self, socket: Wire, peer: Peer, permit: OwnedSemaphorePermit) {
        let settings = self.door.settings();
        match &settings.listener.proxies {
            None => self.serve(socket, peer, permit),
            Some(proxies) if proxies.iter().any(|range| range.contains(peer.ip())) => {
                tokio::spawn(self.clone().take_proxied(socket, peer, permit));
            }
            Some(_) => self.door.refuse_untold(socket, DoorRefusal::NotAProxy),
        }
    }

    /// The same, once its proxy has said whose it is.
    async fn take_proxied(self, socket: Wire, proxy: Peer, permit: OwnedSemaphorePermit) {
        let _introducing = Introducing::new(Arc::clone(&self.gauges));
        let limit = self.door.settings().listener.first_byte_timeout;
        let mut drain = self.drain.clone();
        let introduced = tokio::select! {
            biased;
            introduced = introduce(socket, &self.clock, limit) => introduced,
            _ = drain.wait_for(|view| view.phase >= DrainPhase::Close) => return,
        };
        match introduced {
            Some(known) => self.serve(known.socket, known.client.map_or(proxy, Peer::Tcp), permit),
            None => self.gauges.on_turn_away(self.listener, DoorRefusal::ProxyHeader, false),
        }
    }

    fn serve(&self, socket: Wire, peer: Peer, permit: OwnedSemaphorePermit) {
        let Some((socket, entered)) = self.door.pass(socket, peer) else { return };
        self.gauges.on_accept(self.listener);
        let guard = ConnGuard {
            gauges: Arc::clone(&self.gauges),
            changed: Arc::clone(&self.changed),
            listener: self.listener,
            state: None,
            reason: CloseReason::Failed,
            _room: permit,
            _entered: entered,
        };
        let settings = self.door.settings();
        let parts = ConnParts {
            peer,
            tls: None,
            listener: self.listener,
            trusted: (settings.listener.is_trusted)(peer.ip()),
            clock: self.clock,
            gauges: Arc::clone(&self.gauges),
            door: Arc::clone(&self.door),
            drain: self.drain.clone(),
            changed: Arc::clone(&self.changed),
        };
        tokio::spawn(conn::serve(socket, parts, guard, settings, self.handler.clone()));
    }
}
