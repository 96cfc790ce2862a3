"""JSON Schema brought to what llguidance knows of it, by set algebra: whatever is accepted by what comes out is valid by the schema.

A *goal* is a set of schemas that a value must be valid by, or must not (`goals.py`). It is worked out into *shapes*, each of which says for
every type what a value of it must be (`records.py`), so that `oneOf`, `not`, `if` and the like, and keywords beside `$ref`, are gone. What
a grammar cannot say is made narrower where that leaves something, and refused where not; it is never made wider.
"""
