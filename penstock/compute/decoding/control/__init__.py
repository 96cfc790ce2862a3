"""How many tokens are drafted for each sequence: always the proposer's maximum, or only what is expected to pay."""
