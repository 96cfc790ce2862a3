"""From a name to arrays: `hub` finds a checkpoint, `checkpoint` opens its files, `weights` assembles what a program needs of it."""
