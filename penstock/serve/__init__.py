"""From text to text: tokenizing, the loop, HTTP, many machines. `engine/build.py` is the only wiring."""
