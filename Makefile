# SPDX-License-Identifier: Apache-2.0
# culvert: `make` alone lists the targets. `make demo` and `make test` bring along what they need.

GO           ?= go
CLANG_FORMAT ?= clang-format-19
FUZZTIME     ?= 60s

export CGO_ENABLED = 0

# All that is compiled is compiled in the same way: what it depends on once only.
export GOFLAGS := $(strip $(filter-out -trimpath,$(shell $(GO) env GOFLAGS)) -trimpath)

# Packages whose tests need no root and no network namespace. All others run as root.
UNIT_PKGS = $(sort $(dir $(wildcard $(addsuffix /*_test.go,./internal/api ./internal/events ./internal/genapi ./internal/web ./cmd/culvert/internal/benchcmd ./cmd/culvert/internal/cli ./internal/bench/report ./internal/bpfobj ./internal/bench/search ./internal/config \
	./internal/filter/cbpf/cbpftest ./internal/drivers ./internal/soak ./internal/gendashboards ./internal/guest ./internal/guest/cards ./internal/lb/maglev ./internal/filter/pcap ./internal/scion/scionpkt ./internal/show/dump ./internal/stats ./internal/support ./internal/config/tomltext ./internal/host/pins ./internal/host/procnet ./internal/host/tcplisten ./internal/host/udpsock ./internal/version))))

# Of the binary and of the package.
VERSION ?= $(shell cat VERSION)

# The revision that is built, "" for sources that are in no repository.
REVISION = $(shell git ls-files --error-unmatch VERSION >/dev/null 2>&1 && git describe --always --exclude='*' --abbrev=12 --dirty=' modified')

LDFLAGS = -ldflags "-X culvert/internal/version.tag=$(VERSION) -X 'culvert/internal/version.stamp=$(REVISION)'"

# Of the package and of what 'make dist' lays out: amd64 or arm64.
ARCH ?= $(shell $(GO) env GOHOSTARCH)

# The binary for ARCH, and the target that builds it.
binary_amd64 = bin/culvert
binary_arm64 = bin/culvert-arm64
build_arm64  = build-arm64
binary       = $(or $(binary_$(ARCH)),$(error ARCH is $(ARCH): give amd64 or arm64))

# Instructions per packet, as they were last found to be right.
BASELINE       = internal/guest/testdata/baseline.json
BASELINE_ARM64 = internal/guest/testdata/baseline-arm64.json

# On arm64 the programs alone are counted: end to end, peers lose packets when the clock ticks.
INSN_ARM64 = --arch arm64 --kernel 6.12 --rows cost/redirect,cost/culvert-nomac,cost/culvert-cold,cost/culvert-warm,cost/culvert-switch-cold,cost/filter-pass-10,cost/filter-limit,cost/lb-known,cost/lb-known6,cost/lb-new,cost/route-fib4,cost/route-fib6,cost/route-mirror4,cost/route-mirror6,cost/dear-scion

go_files = git ls-files -co --exclude-standard -- '*.go'
c_files  = git ls-files -co --exclude-standard -- 'bpf/*.c' 'bpf/*.h'

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help deps deps-guest deps-arm64 deps-deb deps-browser build build-arm64 generate check-generated fmt lint peers test test-unit test-root test-long test-kernels \
	test-arm64 test-vlan test-drivers test-bonds soak test-deb test-web bench-insn bench-insn-arm64 baseline baseline-arm64 fuzz demo dist deb clean

help:
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "%-16s %s\n", $$1, $$2 }' Makefile

build: ## build bin/culvert; needs only Go: no clang, no cgo, no root
	$(GO) build $(LDFLAGS) -o bin/culvert ./cmd/culvert

build-arm64: ## build bin/culvert-arm64 for machines with arm64, on any machine
	GOARCH=arm64 $(GO) build $(LDFLAGS) -o bin/culvert-arm64 ./cmd/culvert

demo: deps build peers ## show it: a network of three ASes through culvert, and the speed beside the reference
	@scripts/as-root.sh scripts/demo.sh

# The peers are built beside the linters, neither of which keeps two CPUs busy.
test: deps deps-guest check-generated build ## run everything that CI runs: stale objects, linters, what is packed, all tests, guests
	@$(MAKE) --no-print-directory dist peers & beside=$$!; $(MAKE) --no-print-directory lint; status=$$?; wait $$beside && exit $$status
	@UNIT_PKGS="$(UNIT_PKGS)" BASELINE=$(BASELINE) scripts/test.sh all

test-unit: ## run the tests that need no root
	@UNIT_PKGS="$(UNIT_PKGS)" scripts/test.sh unit

test-root: build peers ## run the tests that need root: packets, namespaces, the lab; ONLY=internal/lab for one package
	@UNIT_PKGS="$(UNIT_PKGS)" ONLY="$(ONLY)" scripts/test.sh root

test-long: deps build peers ## run all Go tests under the race detector, labs with an instrumented binary, 1,000 reloads under load, 10,000 connections through a tier of load balancers, and the page in a browser: hours
	@UNIT_PKGS="$(UNIT_PKGS)" scripts/test.sh race
	@$(MAKE) build
	CULVERT_TEST_RELOADS=1000 $(GO) test -exec "$(CURDIR)/scripts/as-root-apart.sh" -count=1 -timeout 6h -v -run 'TestReloadAllStages$$' ./internal/e2e
	CULVERT_TEST_CONNECTIONS=10000 $(GO) test -exec "$(CURDIR)/scripts/as-root-apart.sh" -count=1 -timeout 2h -v -run 'TestLBPeers$$' ./internal/e2e
	$(GO) test -tags long -count=1 -timeout 1h -v ./internal/cluster/agent
	$(GO) test -tags long -exec "$(CURDIR)/scripts/as-root-apart.sh" -count=1 -timeout 1h -v -run 'TestFleetLong$$' ./internal/lab
	@$(MAKE) test-web
	@$(MAKE) test-deb

test-web: deps-browser build peers ## run the tests of the page to look at, in Chromium against a lab; SCREENSHOTS=DIR to keep pictures
	CULVERT_SCREENSHOTS="$(SCREENSHOTS)" $(GO) test -tags browser -exec "$(CURDIR)/scripts/as-root-apart.sh" -count=1 -timeout 1h -v ./internal/web/browser

test-kernels: deps-guest build ## run the packet tests on Debian's kernels (6.1 and 6.12), in QEMU
	@scripts/test-kernels.sh

test-arm64: deps-arm64 build build-arm64 ## run packet tests on Debian's kernels for arm64, in QEMU; SUITES="lbplane" for some
	@ARCH=arm64 scripts/test-kernels.sh $(SUITES)

test-vlan: deps-guest build ## run the tests with VLAN and VRF devices on Debian's kernels, in QEMU: others may lack them
	@scripts/test-kernels.sh routejudge nexthop

test-drivers: deps-guest build ## run the tests with emulated network cards on Debian's kernels, in QEMU; needs root for cards with several queues
	@scripts/test-drivers.sh

test-bonds: deps-guest build ## run the tests with bonds and VLAN devices on Debian's kernels, in QEMU; RUN=TestBonds/standby for some
	@scripts/test-bonds.sh

soak: deps build peers ## run a lab with all stages, counted traffic and disturbances for an hour, and account for every packet; DURATION=5m for less, SEED=7 for the same again
	@GO=$(GO) DURATION=$(DURATION) SEED=$(SEED) scripts/soak.sh

# The version after this one, for dpkg(1).
NEXT = $(VERSION)+next

test-deb: deps-deb ## install, upgrade, remove and purge the Debian package under a systemd in a container
	@$(MAKE) deb VERSION=$(NEXT)
	@$(MAKE) deb
	@scripts/test-deb.sh $(VERSION) $(NEXT)

bench-insn: deps-guest build ## count instructions per packet on Debian's kernels, in QEMU; fail if they are over 2 % more
	bin/culvert bench insn --baseline $(BASELINE)

baseline: deps-guest build ## count them with the newest kernels, for a new baseline
	bin/culvert bench insn --write-baseline $(BASELINE)

bench-insn-arm64: deps-arm64 build build-arm64 ## the same on arm64, against a baseline of its own; CI does not run it
	bin/culvert bench insn $(INSN_ARM64) --baseline $(BASELINE_ARM64)

baseline-arm64: deps-arm64 build build-arm64 ## count them on arm64 for a new baseline
	bin/culvert bench insn $(INSN_ARM64) --write-baseline $(BASELINE_ARM64)

fuzz: ## run all fuzz targets side by side for FUZZTIME (60s); TARGETS="FuzzRoute" for some of them
	@FUZZTIME=$(FUZZTIME) TARGETS="$(TARGETS)" scripts/fuzz.sh

generate: ## compile bpf/ and write its Go bindings; needs clang-19
	$(GO) generate ./...

check-generated: ## fail when the committed objects do not come from the sources beside them
	@scripts/check-generated.sh

fmt: ## format Go and C in place
	gofmt -w $$($(go_files))
	@files=$$($(c_files)); [ -z "$$files" ] || { set -x; $(CLANG_FORMAT) -i $$files; }

lint: ## check format, vet, staticcheck, licence lines, file lengths, tests named in docs, units, links also of the package, and that stages know no other
	@echo gofmt; out=$$(gofmt -l $$($(go_files))); [ -z "$$out" ] || { echo "not formatted (make fmt): $$out" >&2; exit 1; }
	@echo clang-format; files=$$($(c_files)); [ -z "$$files" ] || $(CLANG_FORMAT) --dry-run -Werror $$files
	@echo spdx; scripts/check-spdx.sh
	@echo length; scripts/check-length.sh
	@echo docs; scripts/check-docs.sh
	@echo links; scripts/check-links.sh *.md docs
	@echo pages of the package; scripts/dist-docs.sh out/lint-docs
	@echo imports; scripts/check-imports.sh
	@echo stages; scripts/check-stages.sh
	@echo units; scripts/check-units.sh
	@echo vet; $(GO) vet ./... && $(GO) vet -tags example ./internal/example ./internal/stages && $(GO) vet -tags browser ./internal/web/browser && $(GO) vet -tags guest ./internal/drivers ./internal/guest
	@echo staticcheck; $(GO) tool staticcheck ./... && $(GO) tool staticcheck -tags example ./internal/example ./internal/stages && $(GO) tool staticcheck -tags browser ./internal/web/browser

peers: build ## build what the lab compares with: the reference router and its control services
	bin/culvert lab build

dist: build $(build_$(ARCH)) ## lay out binary, man pages, completions and systemd units in out/dist; ARCH=arm64 for that
	BINARY=$(binary) scripts/dist.sh out/dist

deb: build $(build_$(ARCH)) ## build the Debian package and its SBOM in out/deb; ARCH=arm64 for that architecture
	@ARCH=$(ARCH) BINARY=$(binary) scripts/deb.sh $(VERSION)

deps: ## install the Debian packages that tests and demo need; nothing when all are there
	@scripts/deps.sh

deps-deb: ## the same for the test of the Debian package
	@scripts/deps.sh deb

deps-browser: ## the same for the tests of the page in a browser
	@scripts/deps.sh browser

deps-arm64: deps-guest ## the same for guests with arm64
	@scripts/deps.sh arm64

deps-guest: ## the same for what runs in QEMU
	@scripts/deps.sh guest

clean: ## remove bin and out
	rm -rf bin out
