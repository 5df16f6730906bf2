# Two commands: `make up` builds and starts everything, `make check` tests it. All others are listed by `make help`.
#
# STATE_DIR, RUN_DIR, CONFIG, LISTEN and BUILD_DIR move everything that is made.

SHELL := /bin/bash
export STATE_DIR RUN_DIR CONFIG LISTEN BUILD_DIR
# Unset ones keep the scripts' defaults.
ifeq ($(STATE_DIR),)
unexport STATE_DIR
endif
ifeq ($(RUN_DIR),)
unexport RUN_DIR
endif
ifeq ($(CONFIG),)
unexport CONFIG
endif
ifeq ($(LISTEN),)
unexport LISTEN
endif
ifeq ($(BUILD_DIR),)
unexport BUILD_DIR
endif

.PHONY: help up down purge build check quick soak asan fuzz bench lint install uninstall

help:
	@echo 'make up         install packages, build, make the base image and template, start the daemon, run a first sandbox'
	@echo 'make check      all tests (installs what they need); the last line is "N passed, N failed"'
	@echo 'make quick      an answer in three minutes: unit tests and the most important end-to-end tests'
	@echo 'make down       end all sandboxes and the daemon'
	@echo 'make purge      down, then remove all that was made; names the packages it leaves'
	@echo
	@echo 'make build      build only'
	@echo 'make asan       unit tests under AddressSanitizer and UndefinedBehaviorSanitizer'
	@echo 'make fuzz       libFuzzer on every parser; FUZZ_TIME=600 seconds each, FUZZ=NAME for one'
	@echo 'make soak       the long tests: everything from nothing, make up && make down N=50 times, 2000 slots, 10000 deaths at fault'
	@echo '             points, 1000 random operations; some hours'
	@echo 'make bench      measure this host'
	@echo 'make lint       cppcheck, clang-tidy, shellcheck, and the documentation against the program'
	@echo 'make install    to PREFIX (/usr/local): programs, man pages, completion, systemd unit; make uninstall'
	@echo
	@echo 'STATE_DIR=/var/lib/space RUN_DIR=/run/space CONFIG=/etc/space/space.yaml LISTEN=127.0.0.1:7070 BUILD_DIR=build'

up down purge build check quick soak asan fuzz bench lint:
	@scripts/$@

install uninstall:
	@scripts/install $@
