"""From a row of logits to a token: what is asked (params), what a row remembers (state), and how it is chosen (sampler)."""
