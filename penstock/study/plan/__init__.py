"""What to buy, and how to run it: whether a model fits hardware that need not be here, how fast it is, and at what cost."""
