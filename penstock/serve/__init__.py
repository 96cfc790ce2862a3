"""From text to text: tokenizing, the loop, HTTP. `engine/build.py` is the only wiring."""
