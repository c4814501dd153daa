#include "textflag.h"

// func At(addr uintptr)
TEXT ·At(SB), NOSPLIT, $0-8
	MOVD addr+0(FP), R0
	PRFM (R0), PLDL1KEEP
	ADD  $64, R0
	PRFM (R0), PLDL1KEEP
	RET
