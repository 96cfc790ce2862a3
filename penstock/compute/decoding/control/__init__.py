"""How many drafts each sequence may have in the next step: always as many as the proposer has, or as many as pay."""
