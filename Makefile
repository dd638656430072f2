# All commands of the repository. Each one first sets up what it needs (scripts/setup.sh).
DEVICE ?= cpu
JOBS ?= 1
.PHONY: help build package wheel test lint format demo picture bench matrix clean

help:
	@echo "make build    build the library, the command reprise, the Python package and the tests in build/release"
	@echo "make package  build only the Python package, in build/release/python"
	@echo "make wheel    build the package and pack it as out/reprise-*.whl, for the torch in .venv"
	@echo "make test     run lint, all tests, the sanitizers and half a minute of fuzzing"
	@echo "make lint     check format, layering and file sizes; run clang-tidy, and ruff and mypy for Python"
	@echo "make format   format all C++ files"
	@echo "make demo     build the package, then train ResNet-50 on the CPU, plain and inside half of its memory;"
	@echo "              the plan goes to out/resnet50.html"
	@echo "make picture  draw the README's pictures in docs/pictures from the page that make demo wrote"
	@echo "make bench    build, then time the planners: bench/results/NAME.json (NAME=..., default: the architecture)"
	@echo "make matrix   build the package, then compare every network x budget x planner with eager PyTorch"
	@echo "              (DEVICE=cuda: on a GPU, JOBS=6: six networks at a time)"
	@echo "make clean    remove build/, .cache/ and .venv/"

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
