// A shared library like those that the fused engine compiles. Its kernel takes the addresses of its arguments.

extern "C" void add_to_sum(void** arguments) {
  const float* x = *static_cast<const float**>(arguments[0]);
  float* sum = *static_cast<float**>(arguments[1]);
  float* doubled = *static_cast<float**>(arguments[2]);
  float* scratch = *static_cast<float**>(arguments[3]);
  const long count = *static_cast<long*>(arguments[4]);
  for (long i = 0; i < count; ++i) {
    scratch[i] += x[i];
    sum[i] += scratch[i];
    doubled[i] = 2 * x[i];
  }
}
