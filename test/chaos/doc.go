// Package chaos breaks real servers under load, and measures what that costs the
// requests: how many fail, for how long, and how many units are admitted beyond the
// limits. Its tests are the short form; the command in cmd/chaos runs the long one
// and writes the tables in docs/failures.md. It also asks the program itself, by all
// doors, while stores pause: see [RunOutside].
//
// # How over-admission is measured
//
// The limits have a period of a day, so that nothing is refilled during a trial. After
// the fault all that is left of every limit is taken. What has been admitted in all,
// less the limit, is what was admitted too much.
//
// What a failover may lose is measured apart from that: a marker with a number is
// written to the primary every few milliseconds, and noted with it are the units that
// callers had been admitted before. Replicas apply writes in their order, so the last
// number on the server that took over tells which admissions it has; those that were
// answered later are in the gap.
package chaos
