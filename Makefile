# The commands of this project under the names that kubebuilder and operator-sdk projects have for them.
# Each is one line that also works without make. `make help` lists them.

# The operator's image, and that of its bundle for the Operator Lifecycle Manager.
IMG ?= workload-operator:latest
BUNDLE_IMG ?= workload-operator-bundle:latest
# docker, podman or `buildah` with the same arguments.
CONTAINER_TOOL ?= docker
KUBECTL ?= kubectl
KIND_CLUSTER ?= kind
PLATFORMS ?= linux/amd64,linux/arm64
CARGO ?= cargo

# Every kind of custom resource: deleted before the operator, which removes the finalizers.
KINDS = memcacheds.cache.example.com genericdaemons.mydomain.com apps.app.example.com
REVISION = $$(git rev-parse --short=12 HEAD)

.DEFAULT_GOAL := build
.PHONY: help build run test test-quick test-e2e lint fmt generate manifests docs install uninstall \
	deploy undeploy kind docker-build docker-push docker-buildx bundle bundle-build build-installer release

##@ General

help: ## Show this list.
	@awk 'BEGIN {FS = ":.*##"; print "Usage: make TARGET [IMG=REGISTRY/IMAGE:TAG]"} \
		/^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z0-9-]+:.*##/ {printf "  %-16s%s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Development

build: ## Build the operator.
	$(CARGO) build --release --locked
run: ## Run the operator against the cluster of the current kubeconfig.
	$(CARGO) run --locked
test: ## Run the tests but those that take minutes; builds a control plane of Kubernetes once, with Go.
	$(CARGO) test --locked
test-quick: ## Run the check before a commit: format, lints, documentation, and most tests without a control plane.
	.ci/quick
test-e2e: ## Run the tests with real nodes and pods; needs root.
	hack/e2e.sh
lint: ## Check the code with clippy.
	$(CARGO) clippy --locked --all-targets -- -D warnings
fmt: ## Format the code.
	$(CARGO) fmt --all
generate: ## Generate CRDs and documents from the code.
	hack/update-codegen.sh
manifests: generate ## The same as generate.
docs: ## Build the documentation: the site in target/book, the library's in target/doc.
	$(CARGO) doc --locked --no-deps --all-features
	hack/book.sh

##@ Cluster

install: ## Install the CRDs.
	$(KUBECTL) apply --server-side -f artifacts/crds/
uninstall: ## Delete the CRDs, and with them every object of their kinds.
	$(KUBECTL) delete --ignore-not-found -f artifacts/crds/
deploy: ## Install the operator, its CRDs and its permissions, with the image IMG.
	$(CARGO) run --quiet --locked -- manifests --image $(IMG) | $(KUBECTL) apply --server-side -f -
undeploy: ## Delete every custom resource, then the operator, its CRDs and its permissions.
	for kind in $(KINDS); do \
		[ -z "$$($(KUBECTL) get crd --ignore-not-found -o name $$kind)" ] || \
		$(KUBECTL) delete --all --all-namespaces $$kind || exit 1; \
	done
	$(CARGO) run --quiet --locked -- manifests --image $(IMG) | $(KUBECTL) delete --ignore-not-found -f -

kind: docker-build ## Load the image IMG into the kind cluster KIND_CLUSTER (created if it is missing), and deploy it.
	kind get clusters | grep -qx $(KIND_CLUSTER) || kind create cluster --name $(KIND_CLUSTER)
	kind load docker-image $(IMG) --name $(KIND_CLUSTER)
	$(MAKE) deploy IMG=$(IMG) KUBECTL="$(KUBECTL) --context kind-$(KIND_CLUSTER)"

##@ Packages

docker-build: ## Build the image IMG.
	$(CONTAINER_TOOL) build --build-arg REVISION="$(REVISION)" -t $(IMG) .
docker-push: ## Push the image IMG.
	$(CONTAINER_TOOL) push $(IMG)
docker-buildx: ## Build the image IMG for PLATFORMS, and push it.
	docker buildx build --push --platform=$(PLATFORMS) --build-arg REVISION="$(REVISION)" -t $(IMG) .
bundle: generate ## Generate the OLM bundle of the image IMG in target/bundle.
	hack/bundle.sh target/bundle $(IMG)
bundle-build: ## Build the image BUNDLE_IMG of the bundle.
	hack/bundle.sh target/bundle $(IMG)
	$(CONTAINER_TOOL) build -f target/bundle/bundle.Dockerfile -t $(BUNDLE_IMG) target/bundle
build-installer: ## Write dist/install.yaml: everything that `deploy` applies, in one file.
	mkdir -p dist
	$(CARGO) run --quiet --locked -- manifests --image $(IMG) >dist/install.yaml.part && mv dist/install.yaml.part dist/install.yaml
release: ## Make all files of the release VERSION in dist/VERSION/.
	hack/release.sh $(VERSION)
