//! The software switch as a service.
#![forbid(unsafe_code)]
