#include "textflag.h"

// func clone(call, a, b uintptr, c *child) (pid uintptr)
TEXT ·clone(SB), NOSPLIT, $8-40
	MOVQ	call+0(FP), AX
	MOVQ	a+8(FP), DI
	MOVQ	b+16(FP), SI
	MOVQ	c+24(FP), R12
	XORL	DX, DX
	XORL	R10, R10
	XORL	R8, R8
	SYSCALL
	TESTQ	AX, AX
	JEQ	child
	MOVQ	AX, pid+32(FP)
	RET
child:
	MOVQ	R12, 0(SP)
	CALL	·become(SB)
	INT	$3
