//! What the checker finds, and what it must not find, system by system. One program: its parts share most of their code, which takes longer
//! to compile than to run.

mod a2tp;
mod atp;
mod atp_wide;
mod campaign;
mod canary;
mod canary_shared;
mod canary_timers;
mod doubling;
mod elements;
mod exchange;
mod flare;
mod flare_model;
mod goodput;
mod lossless;
mod machines;
mod memory;
mod model;
mod netreduce;
mod planted;
mod pods;
mod ps;
mod regressions;
mod reproducible;
mod restarts;
mod results;
mod rina;
mod rina_deaths;
mod routes;
mod sharp;
mod shrink;
mod small;
mod strays;
mod switchml;
mod timeouts;
mod two_jobs;
