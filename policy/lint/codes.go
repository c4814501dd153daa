package lint

// The codes of warnings. A code never changes its meaning.
const (
	// NeverBinds marks a limit that denies nothing because another limit of the same rule
	// always denies first.
	NeverBinds = "HG001"
	// NeverMatches marks a rule whose conditions contradict each other.
	NeverMatches = "HG002"
	// NeverFits marks a limit that holds less than a request costs, so that the rule denies
	// every such request.
	NeverFits = "HG003"
	// Uncaught marks a rule that does not bind requests without one of its Per entries,
	// where no other rule binds those requests.
	Uncaught = "HG004"
	// PlainHash marks a rule that counts by a secret in a set without a hash key.
	PlainHash = "HG005"
	// Unreachable marks a rule whose requests are all answered by the deny list or the
	// allow list.
	Unreachable = "HG006"
	// Shadowed marks a limit that denies nothing because another rule, which counts the same
	// requests, always denies first.
	Shadowed = "HG007"
	// Twice marks a rule that has the key and the limits of another rule, and counts some of
	// its requests a second time.
	Twice = "HG008"
	// OpenTariff marks a tariff that has no limits for other tiers.
	OpenTariff = "HG009"
	// UnknownTier marks a tier in the table of subjects that no rule has limits for.
	UnknownTier = "HG010"
	// Ended marks an override or an entry of a list that has ended.
	Ended = "HG011"
	// Forgeable marks a limit by an address that a client can choose.
	Forgeable = "HG012"
	// ClearSecret marks a secret that stands in the policy in the clear.
	ClearSecret = "HG013"
	// IdleIgnore marks a policy.Ignore that silences nothing.
	IdleIgnore = "HG014"
	// OneNode marks a rule by many keys whose tag keeps all its counters on one node of a
	// cluster.
	OneNode = "HG015"
	// Circle marks rules and entries of the deny list that replace each other, so that a
	// request which meets them all is bound by none of them.
	Circle = "HG016"
	// Unseen marks the first of the rules that were not compared with all others, because
	// that would take too long.
	Unseen = "HG017"
	// SharedLists marks a tariff by an entry that clients choose with each request, whose
	// lists share counters.
	SharedLists = "HG018"
	// NoQueue marks a bound on what is in progress that has requests wait, and does not say
	// how many.
	NoQueue = "HG019"
	// ShortTTL marks a shared bound whose permits the store frees so soon that a renewal can
	// be too late.
	ShortTTL = "HG020"
	// Streams marks a bound for several clients on a route that looks like a stream.
	Streams = "HG021"
)

// Code is a kind of warning.
type Code struct {
	Code string `json:"code"`
	// About says in a sentence what the warning is about.
	About string `json:"about"`
}

// Codes returns all kinds of warnings, in the order of their codes.
func Codes() []Code {
	return []Code{
		{NeverBinds, "A limit never denies, because another limit of the rule always denies first."},
		{NeverMatches, "A rule never matches, because its conditions contradict each other."},
		{NeverFits, "A limit holds less than a request costs, so that the rule denies every such request."},
		{Uncaught, "A rule does not bind requests without an entry that it counts by, and no other rule does."},
		{PlainHash, "A rule counts by a secret that is hashed without a key."},
		{Unreachable, "A rule is never reached, because the deny list or the allow list answers first."},
		{Shadowed, "A limit never denies, because another rule always denies first."},
		{Twice, "A rule counts, by the same key and limits, what another rule counts."},
		{OpenTariff, "A tariff has no limits for other tiers, so that the rule does not bind those."},
		{UnknownTier, "The table of subjects has a tier that no rule has limits for."},
		{Ended, "An override, or an entry of a list, has ended."},
		{Forgeable, "A rule goes by an address that a client can choose."},
		{ClearSecret, "A secret stands in the policy in the clear."},
		{IdleIgnore, "A warning is ignored that there is not."},
		{OneNode, "A rule by many keys has a tag, so that a cluster keeps all its counters on one node."},
		{Circle, "Rules or entries of the deny list replace each other in a circle, so that none of them holds."},
		{Unseen, "A rule has not been compared with all others, because there are too many that it may have to do with."},
		{SharedLists, "Lists of limits by an entry that clients choose with each request share counters."},
		{NoQueue, "Requests wait for what is in progress to end, and the rule does not say how many may."},
		{ShortTTL, "A store frees shared permits so soon that a renewal can be too late."},
		{Streams, "A bound for several clients on what is in progress binds a route that looks like a stream."},
	}
}
