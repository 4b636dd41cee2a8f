//! `/metrics` for Prometheus and `/healthz` for whoever wants to know whether to send jobs here.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::timeout;

/// Connections at once, in all and of one address: nobody can keep others from reading.
const CONNECTIONS_MAX: usize = 64;
const CONNECTIONS_OF_PEER_MAX: usize = 16;

/// How long a connection may last, whether it asks or not, reads or not.
const CONNECTION_LIMIT: Duration = Duration::from_secs(60);

/// How long a request may take to arrive.
const HEADER_LIMIT: Duration = Duration::from_secs(5);

/// The format that Prometheus asks for by default.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Asks the service for all metrics as text.
pub(crate) type Scrape = oneshot::Sender<String>;

/// Whether all is well, or what is not.
pub(crate) type Health = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Well until it drains.
pub(crate) fn well_until(draining: Arc<AtomicBool>) -> Health {
    Arc::new(move || if draining.load(Ordering::Relaxed) { Err("draining".to_owned()) } else { Ok(()) })
}

#[derive(Clone)]
pub(crate) struct Http {
    pub(crate) scrapes: mpsc::Sender<Scrape>,
    pub(crate) health: Health,
}

impl Http {
    /// Serves for ever; ends when the runtime does.
    pub(crate) async fn serve(self, listener: TcpListener) {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let mut peers = BTreeMap::<IpAddr, Arc<()>>::new();
        while let Ok(place) = places.clone().acquire_owned().await {
            let (stream, peer) = match listener.accept().await {
                Ok((stream, peer)) => {
                    peers.retain(|_, count| Arc::strong_count(count) > 1);
                    (stream, peers.entry(peer.ip().to_canonical()).or_default().clone())
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept an HTTP connection");
                    tokio::time::sleep(crate::accept::ACCEPT_PAUSE).await;
                    continue;
                }
            };
            // The table's own one, and this one.
            if Arc::strong_count(&peer) > CONNECTIONS_OF_PEER_MAX + 1 {
                continue;
            }
            let http = self.clone();
            tokio::spawn(async move {
                // Who does not read in time is cut off.
                let _ = timeout(CONNECTION_LIMIT, http.connection(stream)).await;
                drop((place, peer));
            });
        }
    }

    async fn connection(&self, stream: TcpStream) {
        let service = service_fn(|request| async { Ok::<_, Infallible>(self.answer(request).await) });
        let mut server = http1::Builder::new();
        server.timer(TokioTimer::new()).header_read_timeout(HEADER_LIMIT).keep_alive(true);
        if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
            tracing::debug!(%error, "an HTTP connection ended early");
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n".into());
            response.headers_mut().insert(ALLOW, "GET, HEAD".parse().expect("a header"));
            return response;
        }
        match request.uri().path() {
            "/healthz" => match (self.health)() {
                Ok(()) => text(StatusCode::OK, "ok\n".into()),
                Err(why) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
            },
            "/metrics" => self.metrics().await,
            _ => text(StatusCode::NOT_FOUND, "there are /metrics and /healthz\n".into()),
        }
    }

    async fn metrics(&self) -> Response<Full<Bytes>> {
        let (ask, answer) = oneshot::channel();
        if self.scrapes.send(ask).await.is_err() {
            return text(StatusCode::SERVICE_UNAVAILABLE, "the switch has ended\n".into());
        }
        match answer.await {
            Ok(metrics) => respond(StatusCode::OK, OPEN_METRICS, metrics),
            Err(_) => text(StatusCode::SERVICE_UNAVAILABLE, "the switch has ended\n".into()),
        }
    }
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    respond(status, "text/plain; charset=utf-8", body)
}

fn respond(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    response
}
