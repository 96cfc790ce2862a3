"""What settings suit a model, its traffic and this machine: proposed by the twin, measured on the engine, each setting's gain told."""
