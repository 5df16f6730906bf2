/* space-keeper's program as data; its path comes from meson. */
	.section .rodata
	.globl space_keeper_start, space_keeper_end
	.balign 4096
space_keeper_start:
	.incbin KEEPER
space_keeper_end:
	.section .note.GNU-stack, "", @progbits
