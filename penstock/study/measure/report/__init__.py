"""How a result is shown: in the terminal, and as a page that stands alone."""
