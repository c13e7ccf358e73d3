// AddressSanitizer's defaults for fuzz targets: short allocation stacks, and a small quarantine,
// because otherwise large values of the API target get fresh pages each time. Unused without the
// sanitizer. ASAN_OPTIONS overrides them.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "malloc_context_size=6:quarantine_size_mb=16";
}
