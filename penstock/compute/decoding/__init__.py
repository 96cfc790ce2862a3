"""From logits to tokens: sampling (sampler.py), structured output (grammar), speculative decoding (propose, accept.py, acceptance, control)
and beam search (search)."""
