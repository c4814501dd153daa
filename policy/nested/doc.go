// Package nested finds the limits of ordered descriptors, which the configuration of
// envoyproxy/ratelimit nests in one another.
//
// # Basics
//
// An ordered descriptor is a list of entries in a domain. [New] compiles the files of all domains
// to a [Tree] and to a policy.Set. The set has a direct rule for each limit in the files. So the
// list of rules, the metrics, and the refund of one key, which all know rules by their names, also
// cover these limits. [Tree.Find] leads from a descriptor to its rule and key:
//
//	tree, set, err := nested.New(domains)
//	leaf, key, ok := tree.Find("messaging", policy.Descriptor{{"to_number", "2061111111"}})
//
// The entries are looked up one after the other, each among the nodes of its level. A node with the
// entry's own value comes first, then the nodes whose value has a star, in the order of the
// configuration, and last the node without a value. A choice is final: the next entry is looked up
// only below the node that the entry has found. The limit of the descriptor is the limit of the
// node that its last entry finds.
//
// There is a counter for each rule and each combination of the values that the configuration leaves
// open. So no two descriptors share a counter, unless share_threshold is set.
//
// [Rules] converts the same limits to rules that match descriptors of facts, and [Flatten] converts
// an ordered descriptor to such a descriptor.
//
// # Caveats
//
// envoyproxy/ratelimit compares key and value joined by "_". To it, an entry "a" with the value
// "b_c" is the same as an entry "a_b" with the value "c". In this package they differ.
//
// As with all rules, keys hold hashes of secret values. While a hash key is being changed, requests
// are counted under the new one only.
//
// # Reasons
//
// The configuration orders its entries, may use a name twice, and treats an empty value as a value.
// No rule matches that, so it becomes a tree that leads to rules, and names, metrics and refunds
// are those of any rule.
package nested
