// Only the dependency is of use.
