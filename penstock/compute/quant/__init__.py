"""Weight formats: what a matrix is rounded to, in how many bits, and what the result means."""
