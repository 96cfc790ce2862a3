"""What makes a model smaller or faster, and needs torch for it: training heads that draft for it."""
