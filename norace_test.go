//go:build !race

package headgate_test

// allocationCeiling is what a call may allocate on average.
const allocationCeiling = 0
