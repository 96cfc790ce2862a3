"""What this machine and install can do, what is wrong, and how to mend it: one small function for each question."""
