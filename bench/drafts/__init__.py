"""What bench/speculation.py is made of: prompts, a model that copies, and turns."""
