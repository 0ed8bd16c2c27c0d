# Plain `make` lists the targets.

VERSION ?= $(shell sed -n 's/^var Version = "\(.*\)"/\1/p' version.go)$(shell git describe --always --dirty=.dirty --exclude '*' 2>/dev/null | sed 's/^/+/')
PACKAGE := github.com/longstop/longstop
GO      ?= go
export CGO_ENABLED ?= 0
BUILD   := $(GO) build -trimpath -buildvcs=false -ldflags "-s -w -X $(PACKAGE).Version=$(VERSION)"
# With fault hooks compiled in; never released.
FAULTS  := $(GO) build -trimpath -buildvcs=false -tags faults -ldflags "-X $(PACKAGE).Version=$(VERSION)"
SOURCES := go.mod go.sum $(shell find . -name '*.go' -not -name '*_test.go' -not -path './test/*' -not -path './tools/*') $(shell find internal -name '*.sql')
RUNNERS := cmd/longstopd/runners/longstop-runner-linux-amd64 cmd/longstopd/runners/longstop-runner-linux-arm64
TOOLS   := bin/tools
.DELETE_ON_ERROR:

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: bin/longstop bin/longstopd bin/longstop-runner ## bin/longstop, bin/longstopd (runners inside), bin/longstop-runner

.PHONY: demo
demo: build ## show what Longstop is for, on this machine alone, in a page
	@bin/longstop demo

.PHONY: test
test: ## install the Debian packages the tests need (where allowed), then run the tests
	@test/packages test
	$(GO) test -parallel 4 $(GOTESTFLAGS) ./...

SEEDS ?= 10000
.PHONY: sim
sim: ## the simulation of the laws over SEEDS seeds (10000), half of them at a time
	$(GO) test -c -o bin/hostsim.test ./test/hostsim
	cd test/hostsim && half=$$(($(SEEDS) / 2)) && \
	{ ../../bin/hostsim.test -test.run 'TestSimulation$$' -test.timeout 4h -sim.seed 1 -sim.seeds $$half & one=$$!; \
	../../bin/hostsim.test -test.run 'TestSimulation$$' -test.timeout 4h -sim.seed $$((half + 1)) -sim.seeds $$(($(SEEDS) - half)); other=$$?; \
	wait $$one && exit $$other; }

.PHONY: hosts
hosts: build bin/faults/longstop-runner ## tests on real hosts in namespaces, and fault tests (root)
	@test/packages hosts
	@[ "$$(id -u)" = 0 ] || echo "hosts: not root: these tests will skip themselves" >&2
	LONGSTOP_HOSTS=$$([ "$$(id -u)" != 0 ] || echo require) $(GO) test -tags hosts -p 1 -parallel 6 -timeout 12m $(GOTESTFLAGS) ./test/hosts ./test/rig
	LONGSTOP_TRIES=1000 $(GO) test -run TestLaw7ReuseAThousandTimes $(GOTESTFLAGS) ./internal/runner
	GO=$(GO) test/faults $(GOTESTFLAGS)
	GO=$(GO) test/uml || [ $$? = 3 ]

.PHONY: bench
bench: build bin/faults/longstop-runner ## side-by-side measurements, as ratios (root)
	@test/packages bench
	$(GO) run ./test/bench

.PHONY: check
check: ## formatting, vet, import edges, generated files, staticcheck, known vulnerabilities, a short fuzz
	@test/check

.PHONY: generate
generate: ## write what is generated from tables: docs/states.md and the like
	$(GO) generate ./...

.PHONY: clean
clean:
	rm -rf bin cmd/longstopd/runners

bin/longstop: $(SOURCES)
	$(BUILD) -o $@ ./cmd/longstop

bin/longstopd: $(SOURCES) $(RUNNERS)
	$(BUILD) -tags embedrunner -o $@ ./cmd/longstopd

# bin/longstop-runner is this machine's, the others lie beside it by name.
bin/longstop-runner: $(RUNNERS)
	@mkdir -p bin
	cp $(RUNNERS) bin/
	GOOS= GOARCH= $(BUILD) -o $@ ./cmd/longstop-runner

cmd/longstopd/runners/longstop-runner-linux-%: $(SOURCES)
	GOOS=linux GOARCH=$* $(BUILD) -o $@ ./cmd/longstop-runner

# The same commands with fault hooks compiled in, for tests alone.
bin/faults/longstop-runner: bin/faults/longstop bin/faults/longstopd
	$(FAULTS) -o $@ ./cmd/longstop-runner
bin/faults/longstop bin/faults/longstopd: $(SOURCES)
	$(FAULTS) -o $@ ./cmd/$(@F)

# Tools have a module of their own, so that what they need stays out of the product's go.sum.
.PHONY: tools
tools: $(TOOLS)/.built
$(TOOLS)/.built: tools/go.mod tools/go.sum
	@mkdir -p $(TOOLS)
	cd tools && $(GO) build -o ../$(TOOLS)/ tool
	@touch $@
