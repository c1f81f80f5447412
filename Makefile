# Everything this repository can do. `make help` lists the targets; each does its own set-up.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Cluster Autoscaler's core imports every cloud provider unless a tag narrows it to one. Set here, once, for all.
# Checks read what the compiler wrote for the race detector, which the tests need anyway: to compile it all takes minutes.
export GOFLAGS := $(strip $(shell go env GOFLAGS) -tags=externalgrpc)
# Children started in other directories must not take this module for theirs.
export GOWORK := off

BIN := $(CURDIR)/out/bin
TOOLS := .ci/tools
CONTROLPLANE := test/cluster/controlplane
SUPERVISOR := test/cluster/supervisor
IMAGE := deploy/image
PROMETHEUS := test/monitoring/prometheus
OPERATORS := test/operators/kube32 test/operators/kube34
KUBECTL := test/walkthrough/kubectl
RECORDS := $(CURDIR)/out/records
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0

# The unit tests and the end-to-end tests are run apart: an end-to-end test runs a whole cluster and is not to share the cores with a compiler.
PACKAGES = $$(go list ./... | grep -v /test/)
SMALL_PACKAGES = $$(go list ./test/... | grep -v /test/e2e)
OPERATOR_TESTS := TestJobs|TestJobsLoseNoMoreThanTheirNodes|TestTrainingOperator|TestFirstSamplesOfOperatorsSurviveAReclaim|TestJobsOfOperatorsAreBoughtAsAWholeOnTheirFirstStart
TEST_TIMEOUT ?= 20m
E2E_TIMEOUT ?= 60m
# What make test leaves to make test-all.
SHORT ?= -short
VERSIONS ?= $(shell sed -n 's|.*k8s.io/kubernetes v||p' $(CONTROLPLANE)/*.mod | sort -V)

##@ Use

.PHONY: help
help: ## Print this list.
	@awk 'BEGIN {FS = ":.*## "} \
		/^##@ / {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Show all of it on this machine in five minutes, and plot it in out/demo/report.html.
	@mkdir -p $(BIN)
	go build -o $(BIN)/ ./cmd/gpu-spot-autoscaler
	go run ./test/demo

.PHONY: build
build: ## Build the autoscaler, the node-agent and the cloud simulator into out/bin.
	@mkdir -p $(BIN)
	go build -o $(BIN)/ ./cmd/... ./test/alisim/cmd/...

.PHONY: clean
clean: ## Remove out/ (Go's own caches stay).
	rm -rf out

##@ Check

.PHONY: test
test: lint test-unit test-e2e ## Lint, then the tests under the race detector, the end-to-end tests included but for those that take minutes.

.PHONY: test-all
test-all: SHORT =
test-all: test test-grants ## The same with every end-to-end test, and whether those used all rights that are shipped: half an hour more.

.PHONY: test-unit
test-unit: compiler programs $(BIN)/helm ## Run the tests that need no cluster.
	go test -race -vet=off -timeout=$(TEST_TIMEOUT) $(PACKAGES)
	GOFLAGS= go test -C $(IMAGE) -vet=off .
	GOFLAGS= go test -C $(PROMETHEUS) -vet=off .

.PHONY: test-e2e
test-e2e: compiler programs controlplane operators stock kubectl $(BIN)/helm ## Run the tests that start a control plane and a simulated cloud (SHORT= has it run all).
	GOFLAGS= go test -C $(SUPERVISOR) -vet=off ./...
	go test -race -vet=off -timeout=$(TEST_TIMEOUT) $(SHORT) $(SMALL_PACKAGES)
	@rm -rf $(RECORDS)
	E2E_RECORDS=$(RECORDS)/$$(date +%s) \
		go test -race -vet=off -timeout=$(E2E_TIMEOUT) -parallel=8 $(SHORT) ./test/e2e

.PHONY: test-operators
test-operators: build compiler controlplane operators ## Run only the tests in which real operators of job systems run.
	go test -race -vet=off -timeout=$(TEST_TIMEOUT) ./test/operators
	go test -race -vet=off -timeout=$(TEST_TIMEOUT) -parallel=4 -run '^($(OPERATOR_TESTS))$$' ./test/e2e

.PHONY: test-grants
test-grants: ## Check that the end-to-end tests used all that the shipped roles and RAM policy grant, by what make test-e2e SHORT= recorded.
	go run ./test/grants -records=$(RECORDS)

.PHONY: test-monitoring
test-monitoring: prometheus compiler controlplane $(BIN)/helm ## Run the shipped alerts and dashboards in a real Prometheus: each alert is raised by its fault, and each panel shows an autoscaler that lives.
	go test -race -vet=off -timeout=$(TEST_TIMEOUT) ./test/monitoring

.PHONY: test-versions
test-versions: compiler operators ## Run the end-to-end tests that lean on Kubernetes on each version of it (KUBERNETES_VERSION=1.33.13 has any target use that one).
	.ci/test-versions $(VERSIONS)

.PHONY: lint
lint: gofmt vet staticcheck rendered ## Check formatting, go vet, staticcheck, and that deploy/manifests are the chart's.

.PHONY: gofmt
gofmt:
	@files=$$(git ls-files --cached --others --exclude-standard '*.go' | xargs -r ls -d 2>/dev/null | xargs -r gofmt -l); \
	if [ -n "$$files" ]; then printf 'gofmt would change:\n%s\n' "$$files"; exit 1; fi

.PHONY: vet
vet: compiler controlplane operators
	go vet -race ./...
	GOFLAGS= go vet -C $(SUPERVISOR) ./...
	GOFLAGS= go vet -C $(IMAGE) ./...
	GOFLAGS= go vet -C $(PROMETHEUS) .
	GOFLAGS= go vet -C $(KUBECTL) .

.PHONY: staticcheck
staticcheck: compiler $(BIN)/staticcheck
	GOFLAGS="$(GOFLAGS) -race" $(BIN)/staticcheck ./...

.PHONY: vulncheck
vulncheck: build ## Look for known vulnerabilities in what is linked (VULNDB=file:///path has it use a copy of https://vuln.go.dev).
	@status=0; for binary in gpu-spot-autoscaler node-agent; do \
		GOFLAGS= go run $(GOVULNCHECK) -mode=binary $(if $(VULNDB),-db=$(VULNDB)) $(BIN)/$$binary || status=$$?; \
	done; exit $$status

.PHONY: bench
bench: build controlplane operators ## Measure scale-up, refresh, loop, delete, reclaims and the market policy; print tables and write out/bench/*.json.
	go run ./test/bench
	go run ./test/bench/market --protect 0,1h --rolling 3

.PHONY: bench-peers
bench-peers: build controlplane ## Measure it beside Cluster Autoscaler's in-tree alicloud provider, for an hour: out/bench/peers.json.
	go build -tags=alicloud -o $(BIN)/cluster-autoscaler-alicloud k8s.io/autoscaler/cluster-autoscaler
	go run ./test/bench/peers $(if $(RUN),-run $(RUN))

# A test, because the operators and stand-ins are those of the end-to-end tests. An aim that is missed is no failure.
.PHONY: bench-systems
bench-systems: compiler controlplane operators ## Measure what the reclaim of a node costs a job of each job system: out/bench/systems.json.
	BENCH_SYSTEMS=$(CURDIR)/out/bench go test -race -vet=off -count=1 -timeout=$(TEST_TIMEOUT) -parallel=4 -run '^TestReclaimOfEachJobSystem$$' ./test/e2e
	@cat out/bench/systems.txt

.PHONY: bench-market
bench-market: ## Measure what an hour of useful work costs on a recorded spot market, by several policies: out/bench/market.json.
	go run ./test/bench/market --protect 0,1h --rolling 3

.PHONY: chaos
chaos: build controlplane ## Kill the leader twenty times in the middle of a reclaim of 50 of 80 nodes (NODES=200 for 125 of 200): out/chaos/reclaim.json.
	go run ./test/chaos $(if $(NODES),-nodes $(NODES))

.PHONY: chaos-operators
chaos-operators: build controlplane operators ## The same with 20 jobs of the real Kueue and 20 of the real JobSet on 40 nodes (NODES=80 for more): out/chaos/operators.json.
	go run ./test/chaos -operators -nodes $(or $(NODES),40)

.PHONY: contract
contract: ## Ask a real account (REGION=, GROUP=, ARGS=) what the simulator was built on: out/contract.json. docs/contract.md says more.
	@mkdir -p $(BIN)
	@go build -o $(BIN)/contract ./test/contract
	@$(BIN)/contract $(if $(REGION),-region $(REGION)) $(if $(GROUP),-group $(GROUP)) $(ARGS)

##@ Ship

VERSION ?= $(shell sed -n 's/^version: //p' deploy/chart/gpu-spot-autoscaler/Chart.yaml)

.PHONY: image
image: ## Build the images for amd64 and arm64 as OCI archives in out/image, with their SBOMs, without a container engine.
	GOFLAGS= go run -C $(IMAGE) -buildvcs=false . -root $(CURDIR) -out $(CURDIR)/out/image -version $(VERSION)
	GOFLAGS= go test -C $(IMAGE) -vet=off -count=1 -run '^TestTheProgramsOfTheArchivesStart$$' . -archives=$(CURDIR)/out/image

.PHONY: chart
chart: image $(BIN)/helm ## Package the chart with the digests of these images: out/chart.
	.ci/package $(BIN)/helm out/image/digests out/chart

.PHONY: manifests
manifests: $(BIN)/helm ## Render deploy/manifests, deploy/alerts.yaml and deploy/dashboards from the Helm chart.
	.ci/render $(BIN)/helm deploy

.PHONY: docs
docs: compiler ## Write docs/metrics.md from the metrics in the code.
	go test -race -vet=off -run '^TestThePageOfMetrics' ./cmd/gpu-spot-autoscaler/app -update

.PHONY: pictures
pictures: compiler controlplane $(BIN)/helm ## Take the pictures of the status page and of a terminal in docs anew (needs Chromium and kubectl).
	go test -race -vet=off -run '^TestABrowser' ./cloudprovider/status/view -screenshots=$(CURDIR)/docs/images
	go test -race -vet=off -timeout=$(TEST_TIMEOUT) -run '^TestAReleaseOfTheFirstChart' ./test/walkthrough -recording=docs/terminal.svg

.PHONY: rendered
rendered: $(BIN)/helm
	@rm -rf out/rendered && .ci/render $(BIN)/helm out/rendered
	@for file in $$(cd out/rendered && find . -type f); do \
		diff -u "deploy/$$file" "out/rendered/$$file" || { echo 'Not what the chart renders: run make manifests'; exit 1; }; \
	done

##@ Set-up, done by the above

# Built ahead of the tests that start a control plane, so that the minutes count against the time of none.
.PHONY: controlplane
controlplane: ## Build the control plane of the tests, Go modules of their own: minutes the first time.
	go run ./test/cluster/cmd/cluster -build

# The flags are those with which the tests build them, so that nothing is compiled twice. go vet would analyse all that they import.
.PHONY: operators
operators: ## Compile the job operators of the tests, likewise.
	@for module in $(OPERATORS); do GOFLAGS= go build -C $$module -buildvcs=false -gcflags=all=-dwarf=false -o /dev/null .; done

.PHONY: kubectl
kubectl: ## Compile kubectl, with which the tests run the commands of the documentation, likewise.
	@GOFLAGS= go build -C $(KUBECTL) -buildvcs=false -gcflags=all=-dwarf=false -o /dev/null .

# With the flags with which the tests build it, and most of it is in the autoscaler, too.
.PHONY: stock
stock: compiler ## Build Cluster Autoscaler as its authors do, with the cloud provider externalgrpc, into out/bin.
	@mkdir -p $(BIN)
	go build -race -o $(BIN)/cluster-autoscaler-race k8s.io/autoscaler/cluster-autoscaler

# Service discovery is left out but for static targets and files: it is most of what a Prometheus links.
.PHONY: prometheus
prometheus: ## Build Prometheus and promtool into out/bin, likewise.
	@mkdir -p $(BIN)
	GOFLAGS= go build -C $(PROMETHEUS) -buildvcs=false -tags=remove_all_sd -gcflags=all=-dwarf=false -o $(BIN)/ \
		github.com/prometheus/prometheus/cmd/prometheus github.com/prometheus/prometheus/cmd/promtool

.PHONY: compiler
compiler: ## Install a C compiler where none is found: the race detector links with it.
	@if ! command -v "$$(go env CC | cut -d' ' -f1)" >/dev/null; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq gcc libc6-dev; \
		else \
			echo 'The race detector needs a C compiler. Install one: apt-get install gcc libc6-dev' >&2; exit 1; \
		fi; \
	fi

.PHONY: programs
programs: ## Install Python, curl and jq where they are not found: the tests run training loops of deploy/examples, and commands of the documentation.
	@missing=; for program in python3 curl jq; do command -v $$program >/dev/null || missing="$$missing $$program"; done; \
	if [ -n "$$missing" ]; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $$missing; \
		else \
			echo "The tests need$$missing. Install it: apt-get install$$missing" >&2; exit 1; \
		fi; \
	fi

$(BIN)/staticcheck: PACKAGE = honnef.co/go/tools/cmd/staticcheck
$(BIN)/helm: PACKAGE = helm.sh/helm/v3/cmd/helm
$(BIN)/staticcheck $(BIN)/helm: $(TOOLS)/go.mod
	@mkdir -p $(BIN)
	GOFLAGS= go build -C $(TOOLS) -buildvcs=false -o $(BIN)/ $(PACKAGE)
	@touch $@
