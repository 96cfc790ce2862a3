"""The words: what every other floor is written in. Standard library only."""
