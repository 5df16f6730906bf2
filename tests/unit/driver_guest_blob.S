/* The test guest as data. */
	.section .rodata
	.globl driver_guest_start, driver_guest_end
driver_guest_start:
	.incbin GUEST
driver_guest_end:
	.section .note.GNU-stack, "", @progbits
