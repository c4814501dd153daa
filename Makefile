# Every target works from a fresh clone, as any user, with Go, make and git.
# `make` alone lists them.

# sudo may hide Go from the PATH, and Debian keeps nginx off it for users.
GO      ?= $(firstword $(shell command -v go) $(wildcard /usr/local/go/bin/go) go)
export PATH := $(PATH):/usr/local/go/bin:/usr/sbin:/sbin
SHELL   := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

# The binary's version is passed to the linker below. Reading it off the
# repository as well would fail for a user who does not own the checkout.
# Without -trimpath, every clone would compile everything again.
export GOFLAGS := $(strip $(shell $(GO) env GOFLAGS) -buildvcs=false -trimpath)
VERSION ?= $(or $(shell git describe --tags --always --dirty 2>/dev/null),devel)

GOLANGCI_LINT_VERSION := v2.15.0
GOFUMPT_VERSION       := v0.12.0
NFPM_VERSION          := v2.45.2
BUF_VERSION                := v1.70.0
PROTOC_GEN_GO_VERSION      := v1.36.12
PROTOC_GEN_GO_GRPC_VERSION := v1.6.2
TOOLS         := $(CURDIR)/bin/tools
GOLANGCI_LINT := $(TOOLS)/golangci-lint-$(GOLANGCI_LINT_VERSION)
GOFUMPT       := $(TOOLS)/gofumpt-$(GOFUMPT_VERSION)
NFPM          := $(TOOLS)/nfpm-$(NFPM_VERSION)
GENERATORS    := $(TOOLS)/generate-$(BUF_VERSION)-$(PROTOC_GEN_GO_VERSION)-$(PROTOC_GEN_GO_GRPC_VERSION)

# The directory of every module in go.work. Without one, go test would run in the
# root module alone, and all would seem well.
MODULES  = $(or $(shell $(GO) list -m -f '{{.Dir}}'),$(error go.work cannot be read; `go list -m` says why))
PACKAGES = $(addsuffix /...,$(MODULES))
RACED    = $(filter-out $(call NAMED,$(PLAIN)),$(or $(shell $(GO) list $(PACKAGES)),$(error go list names no packages)))
# Packages whose tests start real servers, or other programs that apt installs, reach one of these.
LAUNCHERS := github.com/headgate/headgate/(test/servers|release|bench/internal/(limiterbench|storebench))

# These run without the race detector only: they start no goroutines, or in virtual time, so that it
# has nothing to find, and makes them eight times slower.
PLAIN  := algorithm bench/flow config internal/spelling policy/lint policy/nested store/share
# These run with the race detector and without it: under it they do less, or make other calls.
TWICE  := internal/socket flow/simulate httplimit/outbound store/layered/async store/layered/lease store/layered/regions store/layered/denycache telemetry/insight store/storetest store/memory store/cas \
	tune/replay tune/advise server/grpcapi
# These count what is allocated, which they cannot do with the race detector. It allocates, too.
COUNT  := httplimit policy store/layered/fallback server/candidate server/envoyrls server/gateway server/httpapi server/keepalive server/resp
# These take longest, so that they begin first. Most of their time they wait for servers,
# so that more packages than cores run at a time.
LONGEST := test/topologies test/postgres test/redis test/chaos test/rabbitmq test/e2e test/kafka \
	release test/dashboard test/permits server/cli test/linear test/proxies
AT_ONCE := -p 5 -parallel 4
# Tests without the race detector. They run while programs are installed, and beside the tests with it,
# which leave a processor idle while they begin and while they end.
WITHOUT = $(GO) test -count=1 -vet=off -timeout=25m -p 2
# A package that is named by its import path: go test keeps the order, and runs each once.
NAMED    = $(addprefix github.com/headgate/headgate/,$(1))

# The MiB that the tests want for temporary files: a module cache for release, which takes most,
# test binaries, and the files of servers.
SCRATCH   ?= 3000

ARGS      ?=
FUZZTIME  ?= 30s
TESTFLAGS ?=
# Without it, make packages wants a tag and a clean tree, and gives the packages the tag's version.
SNAPSHOT  ?= -snapshot
# All of a release, or some, as linux/amd64.
PLATFORMS ?=

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/headgate
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/headgate ./server/cmd/headgate

.PHONY: run
run: build ## start the server on the memory store with the sample policy (ARGS="--store redis://...")
	bin/headgate serve $(ARGS)

# -w leaves debugging data out of the dozen programs that tests build: half of the linker's work.
test: GOFLAGS += -ldflags=-w
# Every program with the race detector waits for a second before it ends, for races that others of
# its threads may yet run into. That is a hundred test binaries, and the servers that tests start.
test: export GORACE ?= atexit_sleep_ms=0
.PHONY: test
test: ## run every test, with the race detector, against real servers, which apt installs if missing
	@free=$$(df -Pm "$${TMPDIR:-/tmp}" | awk 'NR == 2 { print $$4 }'); \
	if [ "$$free" -lt $(SCRATCH) ]; then \
		echo "make test: $${TMPDIR:-/tmp} has $$free MiB free, and the tests need $(SCRATCH) MiB there; TMPDIR names another place" >&2; exit 1; fi
	$(MAKE) --no-print-directory -k -j2 test-with test-without test-counts

# Make runs two of these side by side: Ctrl-C ends both, and the failure of one does not hide that of
# another.
.PHONY: test-with test-without test-counts
test-with:
	scripts/install-test-programs
	$(GO) test -race -count=1 -vet=off -timeout=25m $(AT_ONCE) $(TESTFLAGS) $(call NAMED,$(LONGEST)) $(RACED)
# These need none of the programs. A C compiler that is about to be installed must not appear halfway.
test-without test-counts: export CGO_ENABLED := $(if $(and $(shell command -v gcc),$(wildcard /usr/include/stdlib.h)),1,0)
test-without:
	$(WITHOUT) $(TESTFLAGS) $(call NAMED,$(TWICE) $(PLAIN))
test-counts:
	$(WITHOUT) -run Alloc $(TESTFLAGS) . $(call NAMED,$(COUNT))

.PHONY: test-unit
test-unit: ## run the tests that start no server: nothing to install, no C compiler
	@packages=$$($(GO) list -test -f '{{.ImportPath}} {{join .Deps " "}}' $(PACKAGES) | \
	awk '$$1 ~ /\.test$$/ { unit = 1; for (i = 2; i <= NF; i++) if ($$i ~ "^$(LAUNCHERS)$$") unit = 0; \
		if (unit) print substr($$1, 1, length($$1) - 5) }'); \
	$(GO) test -count=1 $(TESTFLAGS) $${packages:?no package has tests that start no server}

.PHONY: bench
bench: ## measure Headgate beside its peers and write docs/benchmarks.md (needs the programs of make test)
	scripts/install-test-programs --bench
	cd bench && $(GO) run ./cmd/bench $(ARGS)

.PHONY: simulate
simulate: ## put adaptive limits and their peers before a simulated server and write docs/flow-simulation.md (minutes)
	cd bench/flow && $(GO) test -count=1 -timeout=60m -v -run '^TestWrite$$' . -args -write $(CURDIR)/docs

.PHONY: monitoring
monitoring: ## write the alert rules and dashboards in deploy/monitoring from the tables in test/monitoring
	cd test && $(GO) test -count=1 -run '^TestWritten$$' ./monitoring -args -write

.PHONY: reference
reference: ## write docs/reference: flags, fields, warnings and paths from what decides, metrics from real servers
	cd test && $(GO) test -count=1 -run '^TestWritten$$' ./docs -args -write
	cd test && $(GO) test -count=1 -run '^TestQueries$$' ./monitoring -args -write

.PHONY: lab
lab: ## build the Lab of the dashboard, and docs/lab.html, from internal/lab
	GOOS=js GOARCH=wasm $(GO) build -trimpath -ldflags '-s -w' -o bin/lab.wasm ./internal/lab/wasm
	gzip -9 -n -c bin/lab.wasm >server/dashboard/static/lab.wasm.gz
	cp "$$($(GO) env GOROOT)/lib/wasm/wasm_exec.js" server/dashboard/static/vendor/wasm_exec.js
	chmod 644 server/dashboard/static/vendor/wasm_exec.js
	cd server && $(GO) test -count=1 -run '^TestLabPage$$' ./dashboard -args -write

.PHONY: chaos
chaos: ## break stores under load, in every topology, and write the tables of docs/failures.md (fifteen minutes)
	scripts/install-test-programs
	cd test && $(GO) run ./chaos/cmd/chaos $(ARGS)

.PHONY: soak
soak: ## search for long: half a million steps on each store, 10,000 killed holders of permits, chaos (hours)
	scripts/install-test-programs
	HEADGATE_STEPS=500000 $(GO) test -race -count=1 -timeout=6h -run 'Histor|Conform|Topolog|Failover|Rollout|AsyncLongRun|LeasesOfProcesses' $(TESTFLAGS) $(PACKAGES)
	cd test && HEADGATE_STEPS=500000 $(GO) test -race -count=1 -timeout=6h -skip 'Histor|Conform|Topolog|Failover' $(TESTFLAGS) ./topologies
	cd test && HEADGATE_PERMIT_TRIALS=10000 $(GO) test -race -count=1 -timeout=6h $(TESTFLAGS) ./permits
	cd test && $(GO) test -race -count=1 -timeout=3h -run TestConsumer/rebalances $(TESTFLAGS) ./kafka -args -rebalances 200
	cd test && $(GO) run ./chaos/cmd/chaos $(ARGS)

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME (30s)
	@$(GO) test -list '^Fuzz' $(PACKAGES) | \
	awk '/^Fuzz/ { target[n++] = $$1 } $$1 == "ok" { for (i = 0; i < n; i++) print $$2, target[i]; n = 0 }' | \
	while read -r package target; do \
		$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime '$(FUZZTIME)' "$$package" </dev/null; \
	done

.PHONY: lint
lint: $(GOLANGCI_LINT) ## check style, mistakes, import rules, and that every go.mod stands on its own
	@status=0; for dir in $(MODULES); do \
		echo "lint $${dir#$(CURDIR)/}"; cd "$$dir"; \
		$(GOLANGCI_LINT) run --config $(CURDIR)/.golangci.yml ./... || status=1; \
	done; cd $(CURDIR) && $(GO) run ./release tidy || status=1; exit $$status

.PHONY: packages
packages: $(NFPM) ## build the binaries and packages of a release into bin/packages, and publish nothing (minutes)
	$(GO) run ./release packages $(SNAPSHOT) -nfpm $(NFPM) $(PLATFORMS)

.PHONY: tidy
tidy: ## make every go.mod and go.sum as `go mod tidy` wants them, without a version to fetch
	$(GO) run ./release tidy -write

.PHONY: release
release: ## check that every module stands on its own, and print the tags that would publish them
	$(GO) run ./release check
	$(GO) run ./release tags

.PHONY: format
format: $(GOFUMPT) ## rewrite the Go files as gofumpt wants them
	$(GOFUMPT) -w $(MODULES)

.PHONY: generate
generate: $(GENERATORS) ## write the Go code of the messages in api/headgate/v1/*.proto
	cd api && export PATH="$(GENERATORS):$$PATH" && buf format --write && buf lint && buf generate

.PHONY: clean
clean: ## remove what was built
	rm -rf bin

$(GOLANGCI_LINT):
	GOBIN=$(TOOLS) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)
	mv $(TOOLS)/golangci-lint $@

$(GOFUMPT):
	GOBIN=$(TOOLS) $(GO) install mvdan.cc/gofumpt@$(GOFUMPT_VERSION)
	mv $(TOOLS)/gofumpt $@

$(NFPM):
	GOBIN=$(TOOLS) $(GO) install github.com/goreleaser/nfpm/v2/cmd/nfpm@$(NFPM_VERSION)
	mv $(TOOLS)/nfpm $@

$(GENERATORS):
	GOBIN=$@.part $(GO) install github.com/bufbuild/buf/cmd/buf@$(BUF_VERSION)
	GOBIN=$@.part $(GO) install google.golang.org/protobuf/cmd/protoc-gen-go@$(PROTOC_GEN_GO_VERSION)
	GOBIN=$@.part $(GO) install google.golang.org/grpc/cmd/protoc-gen-go-grpc@$(PROTOC_GEN_GO_GRPC_VERSION)
	mv $@.part $@
