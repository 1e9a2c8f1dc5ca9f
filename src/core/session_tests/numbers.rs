//! Literal examples of numbers and commits.
