//! The replies to HTTP requests.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::hash::{BuildHasher as _, RandomState};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderValue, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, Request, Response, StatusCode};
use quorate_node::observe::{Board, metrics, watch};
use tokio::time::{Instant, Sleep, sleep};

use super::host;

/// How often a stream looks for events.
const LOOK: Duration = Duration::from_millis(500);
/// After this many intervals without events, a stream sends a comment to show that it is alive.
const SIGN_OF_LIFE: u32 = 30;

const PAGE: &str = include_str!("page.html");
const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";

/// The content of the status server.
pub(super) struct Page {
    pub(super) board: Arc<Board>,
    pub(super) name: String,
    /// This machine's name.
    pub(super) host: String,
}

impl Page {
    /// Answers a request from the last observation.
    pub(super) fn answer(&self, request: &Request<Incoming>) -> Response<Content> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut reply = content(StatusCode::METHOD_NOT_ALLOWED, TEXT, "GET or HEAD\n");
            reply.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return reply;
        }
        let host = request.headers().get(HOST).map(HeaderValue::as_bytes);
        if !host::is_ours(host, &self.host) {
            return content(
                StatusCode::MISDIRECTED_REQUEST,
                TEXT,
                "use an address of this machine, or its name\n",
            );
        }
        let last = self.board.last();
        match (request.uri().path(), last) {
            ("/", _) => page(),
            ("/healthz", _) => content(StatusCode::OK, TEXT, "ok\n"),
            ("/readyz", Some(last)) if last.is_ready() => content(StatusCode::OK, TEXT, "ok\n"),
            ("/readyz", _) => {
                content(StatusCode::SERVICE_UNAVAILABLE, TEXT, "no recent answer from a quorum of replicas\n")
            }
            ("/api/v1/status" | "/metrics" | "/api/v1/events", None) => {
                content(StatusCode::SERVICE_UNAVAILABLE, TEXT, "the cluster has not been observed yet\n")
            }
            ("/api/v1/status", Some(last)) => {
                content(StatusCode::OK, JSON, last.to_json(&self.name, &self.board.addresses()).to_string())
            }
            ("/metrics", Some(last)) => {
                content(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", metrics::text(&last))
            }
            ("/api/v1/events", Some(_)) => self.events(request),
            _ => content(
                StatusCode::NOT_FOUND,
                TEXT,
                "/ /metrics /healthz /readyz /api/v1/status /api/v1/events\n",
            ),
        }
    }

    /// Begins a stream of events, after the last one that the reader has received.
    fn events(&self, request: &Request<Incoming>) -> Response<Content> {
        let last = request.headers().get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
        let stream = Stream {
            board: Arc::clone(&self.board),
            seen: last.unwrap_or(0),
            quiet: SIGN_OF_LIFE,
            tick: Box::pin(sleep(Duration::ZERO)),
        };
        let mut reply = content(StatusCode::OK, "text/event-stream", "");
        if *request.method() == Method::GET {
            *reply.body_mut() = Content::Stream(stream);
        }
        reply
    }
}

/// The page. A random nonce allows its one script to run.
fn page() -> Response<Content> {
    let chance = || RandomState::new().hash_one(0_u64);
    let nonce = format!("{:016x}{:016x}", chance(), chance());
    let mut reply = content(
        StatusCode::OK,
        "text/html; charset=utf-8",
        PAGE.replace("<script>", &format!("<script nonce=\"{nonce}\">")),
    );
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        reply.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    }
    reply
}

fn content(status: StatusCode, kind: &'static str, text: impl Into<Bytes>) -> Response<Content> {
    let mut reply = Response::new(Content::Whole(Some(text.into())));
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'"));
    reply
}

/// The body of a reply: whole, or a stream.
pub(super) enum Content {
    Whole(Option<Bytes>),
    Stream(Stream),
}

/// Events as they happen [HTML, server-sent events].
pub(super) struct Stream {
    board: Arc<Board>,
    /// The number of the last event that was sent.
    seen: u64,
    /// The number of intervals without an event.
    quiet: u32,
    tick: Pin<Box<Sleep>>,
}

impl Stream {
    /// Returns the events to send now.
    fn news(&mut self) -> Option<Bytes> {
        let last = self.board.last()?;
        let events: VecDeque<_> = last.events.iter().filter(|event| event.number > self.seen).collect();
        self.quiet += 1;
        let Some(newest) = events.back() else {
            if self.quiet < SIGN_OF_LIFE {
                return None;
            }
            self.quiet = 0;
            return Some(Bytes::from_static(b": no new events\n\n"));
        };
        (self.seen, self.quiet) = (newest.number, 0);
        let lines =
            events.iter().map(|event| format!("id: {}\ndata: {}\n\n", event.number, watch::event(event)));
        Some(lines.collect::<String>().into())
    }
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let stream = match self.get_mut() {
            Self::Whole(bytes) => {
                let whole = bytes.take().filter(|bytes| !bytes.is_empty());
                return Poll::Ready(whole.map(|bytes| Ok(Frame::data(bytes))));
            }
            Self::Stream(stream) => stream,
        };
        while stream.tick.as_mut().poll(context).is_ready() {
            stream.tick.as_mut().reset(Instant::now() + LOOK);
            if let Some(news) = stream.news() {
                return Poll::Ready(Some(Ok(Frame::data(news))));
            }
        }
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        match self {
            Self::Whole(bytes) => {
                let len = bytes.as_ref().map_or(0, Bytes::len);
                hyper::body::SizeHint::with_exact(u64::try_from(len).unwrap_or(u64::MAX))
            }
            Self::Stream(_) => hyper::body::SizeHint::default(),
        }
    }
}
