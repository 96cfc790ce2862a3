"""The native backend: the whole program is handed to C++ once and replayed by one call a step."""
