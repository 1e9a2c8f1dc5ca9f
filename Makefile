# Everything here sets up what it needs first; see CONTRIBUTING.md.

.PHONY: help run build test check sim bench chaos setup clean
.DEFAULT_GOAL := help

# Relative paths in STATE and ENV_FILE start where make was called, also with `make -C`.
REJOIN_CALLER := $(if $(findstring w,$(firstword -$(MAKEFLAGS))),$(PWD),$(CURDIR))
export PORT HOST STATE ENV_FILE LOG_LEVEL REJOIN_CALLER

help:
	@echo 'make run     serve (PORT=8787, STATE=.state, ENV_FILE=none); ends on SIGTERM or Ctrl-C'
	@echo 'make test    everything: check, native tests, end-to-end tests, a dry deploy'
	@echo 'make check   format and lint, host and wasm'
	@echo 'make build   src/ -> build/'
	@echo 'make sim     the simulation (COUNT=10000 schedules, SEED=1, SUBJECT=all)'
	@echo 'make bench   the measured budgets'
	@echo 'make chaos   the kill campaign (SEED=n, COUNT=200, LANES=4, RELOADS=500)'
	@echo 'make setup   only bring what is missing'
	@echo 'make clean   remove what was built here (the cache of tools stays)'

run:
	@worker-build/run.sh

build:
	@worker-build/build.sh

test:
	@worker-build/test.sh

check:
	@worker-build/check.sh

sim:
	@COUNT='$(COUNT)' SEED='$(SEED)' SUBJECT='$(SUBJECT)' worker-build/sim.sh

bench:
	@worker-build/bench.sh

chaos:
	@worker-build/chaos.sh

setup:
	@worker-build/setup.sh

clean:
	rm -rf build target node_modules .wrangler
