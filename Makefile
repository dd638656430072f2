# The front door; each command sets up what it needs first (scripts/setup.sh).
DEVICE ?= cpu
JOBS ?= 1
.PHONY: help build package wheel test lint format demo picture bench matrix clean

help:
	@echo "make build   release build: build/release"
	@echo "make package the Python package of that build alone: build/release/python"
	@echo "make wheel   the Python package as a wheel, for the torch in .venv: out/reprise-*.whl"
	@echo "make test    everything that must hold: lint, tests, sanitizers, fuzz smoke"
	@echo "make lint    format, clang-tidy, layering and sizes; ruff and mypy for Python"
	@echo "make format  put all C++ files into the project's format"
	@echo "make demo    build the package, then train ResNet-50 on the CPU, plain and inside half of its memory: out/resnet50.html"
	@echo "make picture the README's pictures, of the page that make demo wrote: docs/pictures"
	@echo "make bench   build, then write bench/results/NAME.json (NAME=..., default: the architecture)"
	@echo "make matrix  build the package, then check every network x budget x planner against eager PyTorch (DEVICE=cuda: on a GPU)"
	@echo "make clean   remove build/ and caches"

build:
	@scripts/build.sh release

package:
	@scripts/build.sh release reprise_python

wheel: package
	@scripts/wheel.sh out

test:
	@scripts/test.sh

lint:
	@scripts/lint.sh

format:
	@scripts/setup.sh
	@scripts/format.sh -i

demo: package
	@scripts/python.sh scripts/demo.py

picture:
	@scripts/setup.sh
	@scripts/python.sh scripts/documents/picture.py

matrix:
	@scripts/setup.sh
	@REPRISE_SET_UP=1 scripts/build.sh release reprise_python
	@scripts/python.sh scripts/matrix.py --device $(DEVICE) --jobs $(JOBS)

bench: build
	@python3 scripts/bench.py $(NAME)

clean:
	rm -rf build .cache .venv
