//! Pure decision of the Durable Streams protocol. Empty until those routes are built; the seam is `core::log`.
