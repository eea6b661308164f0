/* Traces as many events of 64 bytes as each line of the input says, and prints how long that took.
 * Exits with 1 if no session has enabled the tracepoint. */
#define _POSIX_C_SOURCE 200809L
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "lttng_tracepoint.h"
#include <stdio.h>
#include <string.h>
#include <time.h>

static unsigned long long now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (unsigned long long)time.tv_sec * 1000000000ULL + (unsigned long long)time.tv_nsec;
}

int main(void) {
    unsigned long long events;
    char payload[64];
    memset(payload, 7, sizeof payload);
    while (scanf("%llu", &events) == 1) {
        if (!lttng_ust_tracepoint_enabled(flatcap_bench, sample)) {
            return 1;
        }
        unsigned long long begin = now_ns();
        for (unsigned long long number = 0; number < events; number++) {
            lttng_ust_tracepoint(flatcap_bench, sample, payload);
        }
        printf("%llu\n", now_ns() - begin);
        fflush(stdout);
    }
    return 0;
}
