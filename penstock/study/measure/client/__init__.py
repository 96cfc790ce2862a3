"""Who asks: an HTTP client made for measuring, and an engine in this process."""
