//go:build !race

package policy

const raced = false
