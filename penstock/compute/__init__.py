"""What is calculated, with how many bits, on which hardware."""
