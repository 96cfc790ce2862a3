"""What it cost, where the limit is, what would be better. Nothing but the command line imports it."""
