/* One tracepoint with 64 bytes. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER flatcap_bench

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "lttng_tracepoint.h"

#if !defined(LTTNG_TRACEPOINT_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define LTTNG_TRACEPOINT_H

#include <lttng/tracepoint.h>

LTTNG_UST_TRACEPOINT_EVENT(
    flatcap_bench, sample,
    LTTNG_UST_TP_ARGS(const char *, bytes),
    LTTNG_UST_TP_FIELDS(lttng_ust_field_array(char, payload, bytes, 64)))

#endif

#include <lttng/tracepoint-event.h>
