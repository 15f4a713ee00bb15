# The human door; CMake (CMakePresets.json) does the work. `make help` lists what there is.
.PHONY: all help install uninstall dist deb build cuda deps try-deps demo-deps lint-deps check test demo asan tsan bench fuzz soak lint fmt release clean
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 60
SOAK_MINUTES ?= 30
# BUILD_DIR=DIR builds there; the scripts read it from the environment. These know ./build alone:
ifneq ($(BUILD_DIR),)
ifneq ($(filter bench cuda fuzz lint,$(MAKECMDGOALS)),)
$(error BUILD_DIR=$(BUILD_DIR) is for build, check, test, demo, asan, tsan, soak, install and clean; \
make $(filter bench cuda fuzz lint,$(MAKECMDGOALS)) uses ./build: leave it out)
endif
endif
all: build ## build build/levin and, with nvcc, the CUDA backend (installs nothing); BUILD_DIR=DIR: build DIR/levin

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build:
	@tools/build default $(JOBS)

cuda: ## build with the CUDA backend; without nvcc fetch it from the Python index first (2.4 GB)
	@tools/build-cuda $(JOBS)

deps: ## install the Debian packages that are missing to build and run levin (prints the list first)
	@tools/install-deps

# Where there is no apt-get (exit 3) the build itself reports what is missing.
try-deps:
	@tools/install-deps full || [ $$? -eq 3 ]
demo-deps:
	@tools/install-deps figures || [ $$? -eq 3 ]
lint-deps:
	@tools/install-deps lint || [ $$? -eq 3 ]

check: ## the quick tests, under two minutes
	@tools/build default $(JOBS) tests
	@tools/check-layers
	@tools/check-names
	@tools/check-words
	@tools/check-docs
	@tools/run-tests fast $(JOBS)

test: try-deps ## install what is missing, build, all tests
	@tools/build default $(JOBS) tests
	@tools/run-tests default $(JOBS)

demo: demo-deps ## install what is missing, build levin alone, train on built-in images, show the result
	@tools/demo $(JOBS)

asan: ## build in build-asan with ASan and UBSan, all tests; ASAN_PART=0 to 3: of those of the command a quarter
	@tools/build asan $(JOBS) tests
	@tools/run-tests asan $(JOBS)

tsan: ## build in build-tsan with TSan, the tests of what threads share
	@tools/build tsan $(JOBS) tests
	@tools/run-tests tsan $(JOBS)

soak: lint-deps build ## random configurations, signals and foreign connections, a new seed each, SOAK_MINUTES (30), then the slow tests
	@tools/build default $(JOBS) tests
	@tools/soak $(SOAK_MINUTES)

fuzz: ## search for inputs that break a parser, FUZZ_SECONDS (60) each; FUZZ="idx npy": only these
	@tools/fuzz $(JOBS) $(FUZZ_SECONDS) $(FUZZ)

bench: ## run every program of bench/
	@tools/build default $(JOBS) tests
	@tools/run-bench

lint: lint-deps ## clang-tidy over what is not known to be clean, and the checks of tools/
	@tools/check-layers
	@tools/check-names
	@tools/check-words
	@tools/check-docs
	@tools/check-headers
	@tools/check-format
	@tools/lint $(JOBS)

fmt: lint-deps ## clang-format all C files that git knows
	@git ls-files '*.c' '*.h' '*.cu' '*.cuh' '*.cpp' | xargs -r clang-format -i

install: build ## install below PREFIX (/usr/local); DESTDIR goes in front of it
	@DESTDIR='$(DESTDIR)' tools/install '$(or $(BUILD_DIR),build)' '$(PREFIX)'

uninstall: ## remove what the last `make install` put there
	@DESTDIR='$(DESTDIR)' tools/install --uninstall '$(PREFIX)'

release: ## check that the committed state can be released, and write build/release/levin-VERSION.tar.gz
	@tools/release

dist: build ## a directory that runs on any Linux of these years, and its .tar.xz, in build/dist (docs/dist.md)
	@tools/install-deps dist || [ $$? -eq 3 ]
	@tools/build default $(JOBS) levin_start
	@tools/dist '$(or $(BUILD_DIR),build)' '$(or $(BUILD_DIR),build)/dist'

deb: build ## a package for this Debian, in build/dist
	@tools/install-deps dist || [ $$? -eq 3 ]
	@cd '$(or $(BUILD_DIR),build)' && cpack -G DEB -B dist

clean: ## remove the build folders
	@tools/clean
