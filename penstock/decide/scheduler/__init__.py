"""Who goes next: sequences, token by token, under a budget of tokens and of KV blocks."""
