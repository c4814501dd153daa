// Package permits tries shared permits with processes that are killed, stopped and cut off
// while they hold them, and with a store whose clock steps.
//
// # Basics
//
// Each trial is one fault of one process. The processes work under permits of a
// flow/shared gate, and send the fence of their lease with each write to a [Resource],
// which looks at fences as a real one should. [Run] has the assertions:
//
//   - the store never lists more units in use than the limit, nor one slot twice;
//   - no two holders ever have the same slot and epoch, nor a slot that is none;
//   - the resource never refuses a holder whose lease is live, and so takes nothing from
//     one whose slot somebody else has written under;
//   - what a killed process held is free again, and at the end no key is left.
//
// The tests run a dozen trials on each store. HEADGATE_PERMIT_TRIALS says how many
// it should be instead.
//
// # Caveats
//
// How soon units are back is reported and not asserted: a busy machine takes its time.
package permits
