"""Regexes as sets of strings: parsed in the syntax of ECMAScript and Python, combined by set operations, written for Rust's crate."""
