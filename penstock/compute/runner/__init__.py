"""Plan -> flat arrays -> the backend's step -> chosen tokens."""
