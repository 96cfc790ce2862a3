"""What is read off the last hidden state."""
