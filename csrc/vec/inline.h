// Functions on vectors are part of their callers: as calls they would pass every vector through memory.
#pragma once
#define PENSTOCK_INLINE inline __attribute__((always_inline))
#define PENSTOCK_INLINED __attribute__((always_inline))  // the same for lambdas
