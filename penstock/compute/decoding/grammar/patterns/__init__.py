"""Regexes as sets of texts: read as ECMAScript and Python write them, combined, complemented, and written as Rust's crate reads them."""
