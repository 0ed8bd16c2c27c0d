#include "textflag.h"

// func clone(call, a, b, life uintptr, c *child) (pid uintptr)
TEXT ·clone(SB), NOSPLIT, $16-48
	MOVD	call+0(FP), R8
	MOVD	a+8(FP), R0
	MOVD	b+16(FP), R1
	MOVD	life+24(FP), R20
	MOVD	c+32(FP), R19
	MOVD	ZR, R2
	MOVD	ZR, R3
	MOVD	ZR, R4
	SVC
	CBZ	R0, child
	MOVD	R0, pid+40(FP)
	RET
child: // R28 is as it came
	MOVD	R19, R0
	CALL	(R20)
	BRK
