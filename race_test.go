//go:build race

package headgate_test

// allocationCeiling is what a call may allocate on average: under the race
// detector, pools drop what is put back at random.
const allocationCeiling = 3
