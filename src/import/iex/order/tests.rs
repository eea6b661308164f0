//! Feeds in every order.
