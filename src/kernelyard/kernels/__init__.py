"""What operators share: building and launching CUDA C++, torch registration, layouts, launch counters."""
