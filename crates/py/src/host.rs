//! A switch in this process.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fanin_comm::Host as Inner;
use pyo3::prelude::*;

use crate::errors;

/// A switch in this process, at a port that the kernel chooses where none is given: for jobs of which this process is rank 0.
#[pyclass(frozen, module = "fanin._native")]
pub struct Host {
    inner: Mutex<Option<Inner>>,
    address: SocketAddr,
}

impl Host {
    fn take(&self) -> Option<Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[pymethods]
impl Host {
    /// `listen` is `IP:PORT`; `linger`, in seconds, how long `close` waits for other ranks to leave; the others as those of a communicator.
    #[new]
    #[pyo3(signature = (listen, *, linger=60.0, tls=None, tls_name=None, tls_cert=None, tls_key=None))]
    fn start(
        py: Python<'_>,
        listen: &str,
        linger: f64,
        tls: Option<String>,
        tls_name: Option<String>,
        tls_cert: Option<String>,
        tls_key: Option<String>,
    ) -> PyResult<Self> {
        let wrong = |what: &str| errors::argument(py, what, None);
        let listen = listen.parse().map_err(|_| wrong(&format!("listen = {listen:?}: expected IP:PORT")))?;
        let linger = Duration::try_from_secs_f64(linger).map_err(|_| wrong(&format!("linger = {linger}: expected seconds")))?;
        let said = [("FANIN_TLS", tls), ("FANIN_TLS_NAME", tls_name), ("FANIN_TLS_CERT", tls_cert), ("FANIN_TLS_KEY", tls_key)];
        let given = said.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        let inner = py.detach(|| Inner::start_by(&given, listen, linger)).map_err(|error| errors::exception(py, &error, None))?;
        Ok(Host { address: inner.address(), inner: Mutex::new(Some(inner)) })
    }

    /// `IP:PORT` at which it listens.
    #[getter]
    fn address(&self) -> String {
        self.address.to_string()
    }

    /// Ends once the other ranks have left its jobs, or when it has lingered long enough. Nothing happens where that is done already.
    fn close(&self, py: Python<'_>) {
        let inner = self.take();
        py.detach(|| drop(inner));
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let mut inner = self.take();
        if inner.is_some() && Python::try_attach(|py| py.detach(|| drop(inner.take()))).is_none() {
            drop(inner);
        }
    }
}
