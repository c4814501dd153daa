package app

// reserve is a part of the heap that is never touched. It takes addresses but no memory, and yet
// the garbage collector counts it as live. The collector starts when the heap is twice as large as
// what was live, so a small heap can grow by the size of the reserve before it starts. Without a
// reserve, the few MiB that a busy service keeps alive are collected a dozen times a second. A
// larger GOGC would do the same for small heaps, but would allow gigabytes of garbage beside a
// store of gigabytes.
type reserve []byte
