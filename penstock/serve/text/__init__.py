"""Between text and tokens: tokenizers, incremental detokenizing, stop strings, chat templates, cache marks, answer parsers."""
