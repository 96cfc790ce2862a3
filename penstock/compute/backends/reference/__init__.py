"""The reference backend: op by op in the array API standard, on numpy or torch. Slow, plain, and what every kernel is compared with."""
