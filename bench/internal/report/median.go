package report

import (
	"math"
	"slices"
)

// Median returns the value in the middle, or the mean of the two in the middle.
// Of no values it is NaN.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	mid := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[mid]
	}
	return (sorted[mid-1] + sorted[mid]) / 2
}

// Quantile returns the smallest of the values that at least the share q of them
// does not exceed; q is 0 to 1. What is not a number is left out; of no values
// the quantile is NaN.
func Quantile(values []float64, q float64) float64 {
	sorted := slices.DeleteFunc(slices.Sorted(slices.Values(values)), math.IsNaN)
	if len(sorted) == 0 {
		return math.NaN()
	}
	i := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// MedianOf is [Median] of one figure of each item.
func MedianOf[T any](items []T, figure func(T) float64) float64 {
	values := make([]float64, len(items))
	for i, item := range items {
		values[i] = figure(item)
	}
	return Median(values)
}

// Spread is how far values lie apart: the largest over the smallest. It is NaN
// if there are none or the smallest is not positive.
func Spread(values []float64) float64 {
	if len(values) == 0 || slices.Min(values) <= 0 {
		return math.NaN()
	}
	return slices.Max(values) / slices.Min(values)
}

// Ratio is a over b, or NaN where that says nothing: b zero, or either unknown.
func Ratio(a, b float64) float64 {
	if b == 0 || math.IsNaN(a) || math.IsNaN(b) {
		return math.NaN()
	}
	return a / b
}

// Least returns the smallest of the items' figures that is a number, or NaN.
func Least[T any](items []T, figure func(T) float64) float64 {
	least := math.NaN()
	for _, item := range items {
		if f := figure(item); math.IsNaN(least) || f < least {
			least = f
		}
	}
	return least
}
