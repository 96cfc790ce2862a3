"""The twin: the real scheduler and the real accounting of the KV cache, on a virtual clock, with steps that take what a StepTimer says."""
