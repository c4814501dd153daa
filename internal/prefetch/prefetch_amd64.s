#include "textflag.h"

// func At(addr uintptr)
TEXT ·At(SB), NOSPLIT, $0-8
	MOVQ addr+0(FP), AX
	PREFETCHT0 (AX)
	PREFETCHT0 64(AX)
	RET
