#include "textflag.h"

// func clone(call, a, b uintptr, c *child) (pid uintptr)
TEXT ·clone(SB), NOSPLIT, $16-40
	MOVD	call+0(FP), R8
	MOVD	a+8(FP), R0
	MOVD	b+16(FP), R1
	MOVD	c+24(FP), R19
	MOVD	ZR, R2
	MOVD	ZR, R3
	MOVD	ZR, R4
	SVC
	CBZ	R0, child
	MOVD	R0, pid+32(FP)
	RET
child:
	MOVD	R19, 8(RSP)
	BL	·become(SB)
	BRK
