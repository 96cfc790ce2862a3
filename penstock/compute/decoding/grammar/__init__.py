"""Structured output: constrains an answer by a JSON schema, a regex, a list of choices or a grammar. One file per kind of structure.

    class Structure:                                  # contract.py; its name in the table is a field of StructuredOutputsParams
        def checked(self, value) -> value             # the field's value, validated and hashable; raises RequestError
        def grammar(self, wanted, effort, room) -> Written  # in llguidance's language, Lark with extensions; raises RequestError

compiler.py compiles and caches grammars, matcher.py holds the grammar state of one sequence, masks.py computes the token masks of a step on
another thread while the model runs. The parser is llguidance (https://github.com/guidance-ai/llguidance): an Earley parser over a lexer of
regex derivatives, traversed together with a trie of all tokens.
"""
from penstock.core.registry import Table

TABLE = Table("structure", {
    "json": "penstock.compute.decoding.grammar.json_schema:JsonSchema",
    "json_object": "penstock.compute.decoding.grammar.json_object:JsonObject",
    "regex": "penstock.compute.decoding.grammar.regex:Regex",
    "choice": "penstock.compute.decoding.grammar.choice:Choice",
    "grammar": "penstock.compute.decoding.grammar.lark:Lark",
})
