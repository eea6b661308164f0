//! Tests of the control socket and the metrics server against hostile clients.

mod hostile_clients;
