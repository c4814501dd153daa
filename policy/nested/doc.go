// Package nested finds the limits of ordered descriptors, as the configuration of
// envoyproxy/ratelimit nests them.
//
// # Basics
//
// An ordered descriptor is a list of entries, and belongs to a domain. [New] makes
// a [Tree] of what the files of the domains say, and a policy.Set with a direct
// rule for each limit in them, so that everything that knows rules by name (the
// list of rules, metrics, a refund of one key) knows these. [Tree.Find] leads from
// a descriptor to its rule and key:
//
//	tree, set, err := nested.New(domains)
//	leaf, key, ok := tree.Find("messaging", policy.Descriptor{{"to_number", "2061111111"}})
//
// One entry after the other is looked for among the nodes of its level: first a
// node with the entry's own value, then the nodes whose value has a star, in
// their order, then the node without a value. There is no way back: where an
// entry has found a node, the next one is looked for below that one only. The
// descriptor's limit is that of the node at which its last entry arrives.
//
// A counter is kept for each rule and for the values of all entries that the
// configuration leaves open, so that no two descriptors share one, unless
// share_threshold says so.
//
// [Rules] writes the same limits as rules that match descriptors of facts, and
// [Flatten] makes such a descriptor of an ordered one.
//
// # Caveats
//
// envoyproxy/ratelimit compares key and value joined by "_", so that to it an
// entry "a" with the value "b_c" is the same as an entry "a_b" with the value "c".
// Here they differ.
//
// The rules' keys hold hashes of secret values, as those of all rules do. While a
// hash key is being changed, they are counted under the new one only.
package nested
