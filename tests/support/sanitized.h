/* Under AddressSanitizer and ThreadSanitizer a test is two to fifty times as slow. What only
 * repeats itself is less there: the same calls and ends on fewer or smaller cases, of which the
 * plain build (`make test`) runs all. */
#ifndef LEVIN_TESTS_SANITIZED_H
#define LEVIN_TESTS_SANITIZED_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

#endif
