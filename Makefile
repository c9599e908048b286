# The short names for everything; CMake does the building (CMakePresets.json has debug, asan and mpich too).
BUILD := build
JOBS  := $(shell nproc 2>/dev/null || echo 2)

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

deps: ## install all packages (apt, through sudo when not root)
	@tools/deps.sh

build: deps ## build/hybridop
	@cmake --preset release >/dev/null
	@cmake --build $(BUILD) -j $(JOBS)

demo: build ## fine-tune the bundled model on 2 BP-free + 2 BP-capable processes
	@tools/demo.sh

test: build ## all tests
	@ctest --test-dir $(BUILD) --output-on-failure

bench: build ## speed and memory, one JSON line a case
	@tools/bench.sh $(BUILD)

format: ## put all sources into the project's format
	@clang-format -i $$(git ls-files '*.c' '*.h')

clean: ## remove what was built
	@rm -rf build build-*

.PHONY: help deps build demo test bench format clean
.DEFAULT_GOAL := help
