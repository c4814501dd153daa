// Package workload makes the questions that every contender is asked: the same
// keys, in the same order, under the same two limits.
//
// # Basics
//
// A [Sequence] is a long list of keys, drawn once and read by all contenders.
// Each key belongs to a [Class]: most are held to a wide limit that is never
// reached, one in [NarrowEvery] to a narrow one that is used up before the
// measuring begins. So the share of denials is fixed by the sequence, and a
// fast contender meets as many of them as a slow one.
//
// # Caveats
//
// Keys lie in the sequence as bytes, one after the other, as if they had just
// arrived: reading them costs next to nothing, and none shares its memory with
// the key that a store has kept.
package workload
