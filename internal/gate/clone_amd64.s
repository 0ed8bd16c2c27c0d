#include "textflag.h"

// func clone(call, a, b, life uintptr, c *child) (pid uintptr)
TEXT ·clone(SB), NOSPLIT, $0-48
	MOVQ	call+0(FP), AX
	MOVQ	a+8(FP), DI
	MOVQ	b+16(FP), SI
	MOVQ	life+24(FP), R13
	MOVQ	c+32(FP), R12
	XORL	DX, DX
	XORL	R10, R10
	XORL	R8, R8
	SYSCALL
	TESTQ	AX, AX
	JEQ	child
	MOVQ	AX, pid+40(FP)
	RET
child: // R14 is as it came
	XORPS	X15, X15
	MOVQ	R12, AX
	CALL	R13
	INT	$3
