"""Steps of generated kernels.

lowered        a lowered step as plain data: launches of kernels and calls of ATen over named memory
settings       what tracing and the cache have to know of Inductor
internals      what is taken from Inductor itself
inductor       Inductor lowers the joint graph, compiles kernels and tunes them
kernel_files   kernels as files that the runtime loads
saved_steps    lowered steps in the cache, so that a later process does not need Inductor at all
capture        a lowered step as a Program

Only `internals` imports torch._inductor; scripts/checks/layering.py sees to it.
"""
