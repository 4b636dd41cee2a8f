//! `/metrics` and `/healthz` of a switch that is no daemon: on a thread of their own, from what it leaves there.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};

use crate::daemon::{StartError, listen};
use crate::http::Http;
use crate::metrics::process;
pub use crate::metrics::{Labels, Page};
use crate::process::ProcessStatus;

/// A running server; dropping it ends it.
#[derive(Debug)]
pub struct PageServer {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl PageServer {
    /// Serves from now on. `metrics` fills the page of a scrape, to which what is measured of the process is added; `health` says what is not
    /// well.
    ///
    /// # Errors
    /// [`StartError`] with the address and the kernel's reason.
    pub fn start(
        address: SocketAddr,
        metrics: impl Fn(&mut Page) + Send + 'static,
        health: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Result<Self, StartError> {
        let listener = listen("HTTP", address)?;
        let address = listener.local_addr()?;
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        let (stop, stopped) = oneshot::channel();
        let serve = move || runtime.block_on(serve(listener, metrics, Arc::new(health), stopped));
        let thread = thread::Builder::new().name("fanin-http".into()).spawn(serve)?;
        Ok(PageServer { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it serves.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for PageServer {
    fn drop(&mut self) {
        // It may have ended by itself, which has been logged.
        self.stop.take().map(|stop| stop.send(()));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

async fn serve(
    listener: TcpListener,
    metrics: impl Fn(&mut Page),
    health: crate::http::Health,
    mut stopped: oneshot::Receiver<()>,
) -> io::Result<()> {
    let (ask, mut scrapes) = mpsc::channel(16);
    tokio::spawn(Http { scrapes: ask, health }.serve(tokio::net::TcpListener::from_std(listener)?));
    loop {
        tokio::select! {
            Some(scrape) = scrapes.recv() => {
                let mut page = Page::default();
                metrics(&mut page);
                process(&mut page, &ProcessStatus::read());
                // Whoever has asked may be gone.
                drop(scrape.send(page.text()));
            }
            _ = &mut stopped => return Ok(()),
        }
    }
}
