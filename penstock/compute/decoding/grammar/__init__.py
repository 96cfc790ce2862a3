"""Structured output: what an answer must be, and which tokens may come next. One file for each way of saying it.

    class Structure:                                  # contract.py; called after a field of StructuredOutputsParams
        def checked(self, value) -> value             # in one form that can be compared; raises RequestError
        def grammar(self, wanted, effort, room) -> Written  # in llguidance's language, Lark with extensions; raises RequestError

`compiler.py` compiles each grammar once, `matcher.py` follows one sequence through it, `masks.py` says what the rows of a step may choose
while the step is computed. llguidance (https://github.com/guidance-ai/llguidance) is the parser: an Earley parser over a lexer of
derivatives, walked together with a trie of all tokens.
"""
from penstock.core.registry import Table

TABLE = Table("structure", {
    "json": "penstock.compute.decoding.grammar.json_schema:JsonSchema",
    "json_object": "penstock.compute.decoding.grammar.json_object:JsonObject",
    "regex": "penstock.compute.decoding.grammar.regex:Regex",
    "choice": "penstock.compute.decoding.grammar.choice:Choice",
    "grammar": "penstock.compute.decoding.grammar.lark:Lark",
})
