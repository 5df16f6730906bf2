/* driver_guest.S - the smallest guest: a PVH kernel of a page, so that the driver is tested with a real QEMU and without a Linux.
 *
 * It fills 256 KiB at PATTERN once, says "up", and then for ever: adds one to COUNT, writes COUNT into page COUNT % 256 of RING, checks the
 * pattern, and says "n=XXXXXXXX" with "bad" behind it if the pattern is not what it was. Ending its command line in 'R' makes it reset
 * the machine after eight rounds; in 'P', say "Kernel panic - not syncing" first; in 'F', say as much as it can, for ever. */
	.set COUNT, 0x300000
	.set PATTERN, 0x400000
	.set PATTERN_WORDS, 0x10000
	.set RING, 0x800000
	.set UART, 0x3f8

	.section .note.pvh, "a", @note
	.balign 4
	.long 4, 4, 18			/* XEN_ELFNOTE_PHYS32_ENTRY */
	.asciz "Xen"
	.long _start

	.text
	.code32
	.globl _start
_start:
	cld
	mov $stack_top, %esp
	/* the last byte of the command line: start_info.cmdline_paddr */
	xor %ebp, %ebp
	mov 24(%ebx), %esi
	test %esi, %esi
	jz 2f
1:	lodsb
	test %al, %al
	jz 2f
	movzbl %al, %ebp
	jmp 1b
2:	mov $PATTERN, %edi
	mov $PATTERN_WORDS, %ecx
3:	imul $2654435761, %edi, %eax
	stosl
	loop 3b
	movl $0, COUNT
	mov $up, %esi
	call say

round:	incl COUNT
	mov COUNT, %eax
	mov %eax, %edx
	and $255, %edx
	shl $12, %edx
	mov %eax, RING(%edx)

	mov $PATTERN, %edi
	mov $PATTERN_WORDS, %ecx
	xor %edx, %edx
4:	imul $2654435761, %edi, %eax
	xor (%edi), %eax
	or %eax, %edx
	add $4, %edi
	loop 4b

	push %edx
	mov $n_is, %esi
	call say
	mov COUNT, %eax
	mov $8, %ecx
5:	rol $4, %eax
	push %eax
	and $15, %eax
	mov digits(%eax), %al
	call put
	pop %eax
	loop 5b
	pop %edx
	mov $newline, %esi
	test %edx, %edx
	jz 6f
	mov $bad, %esi
6:	call say

	cmp $'F', %ebp
	je round
	mov $2000, %ecx
7:	pause
	loop 7b
	cmpl $8, COUNT
	jne round
	cmp $'R', %ebp
	je reset
	cmp $'P', %ebp
	jne round
	mov $panic, %esi
	call say
reset:	lidt no_idt			/* no handler for anything: the next interrupt is a triple fault */
	int3

say:	lodsb
	test %al, %al
	jz 8f
	call put
	jmp say
8:	ret

put:	push %eax
	push %edx
	mov %al, %ah
	mov $UART + 5, %dx
9:	inb %dx, %al
	test $0x20, %al
	jz 9b
	mov $UART, %dx
	mov %ah, %al
	outb %al, %dx
	pop %edx
	pop %eax
	ret

	.section .rodata
up:	.asciz "up\n"
n_is:	.asciz "n="
newline: .asciz "\n"
bad:	.asciz " bad\n"
panic:	.asciz "Kernel panic - not syncing: told to\n"
digits:	.ascii "0123456789abcdef"
	.balign 8
no_idt:	.word 0
	.long 0

	.bss
	.balign 16
	.skip 4096
stack_top:
	.section .note.GNU-stack, "", @progbits
