/* Pushes an application's own frames to the flight recorder flatcap, through shared memory.
 *
 * A push is a copy, a checksum and a few stores: no system call, no lock. Without a recorder, all
 * calls succeed or fail in two nanoseconds, and what is dropped is counted; a recorder that starts
 * later is found within a second. Any thread may call any function. A signal handler may call none:
 * it may have interrupted malloc, or a call that holds a lock. A forked child is a client of its own.
 */
#ifndef FLATCAP_PUSH_H
#define FLATCAP_PUSH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct flatcap flatcap_t;
typedef struct flatcap_source flatcap_source_t;

/* What a push does when the ring of its thread is full. */
enum {
    FLATCAP_DROP_NEWEST = 0, /* drops this sample */
    FLATCAP_DROP_OLDEST = 1, /* drops the oldest samples of this thread, of whatever source */
    FLATCAP_BLOCK = 2        /* waits, up to a limit, then drops this sample */
};

typedef struct flatcap_options {
    size_t size;             /* sizeof(flatcap_options_t) */
    const char *socket;      /* NULL: $FLATCAP_PUSH_SOCKET, or that of the service or user */
    const char *name;        /* of the client: 1 to 64 bytes of UTF-8 */
    uint64_t ring_bytes;     /* of each thread; 0: the recorder's default */
    uint64_t block_limit_ns; /* of FLATCAP_BLOCK; 0: 10 ms */
    int use_counter;         /* not 0: stamps by the timestamp counter, if the kernel trusts it */
} flatcap_options_t;

/* Opens a client. NULL only if a name is not valid: a recorder need not be there. */
flatcap_t *flatcap_open(const char *socket, const char *name);
flatcap_t *flatcap_open_with(const flatcap_options_t *options);

/* Sets up a source, which lives as long as its client. `schema` is what `flatc --binary --schema`
 * writes, `root` the full name of the payload's table; for undescribed bytes NULL and no length.
 * NULL if a name is not valid or there are 64 sources. */
flatcap_source_t *flatcap_source(flatcap_t *client, const char *name, const char *root,
                                 const void *schema, size_t schema_length, int on_full);

/* Pushes a sample, stamped now. Returns 0, or why it was dropped and counted: -ENOTCONN no recorder
 * takes it, -ENOBUFS the ring is full, -EMSGSIZE it is too long, -EAGAIN the recorder has paused the
 * client, -EBUSY this thread is in the middle of another push, -EINVAL source or payload is NULL. */
int flatcap_push(flatcap_source_t *source, const void *payload, size_t length);

/* Pushes `count` samples whose payloads follow each other. Returns how many were not dropped. */
ptrdiff_t flatcap_push_many(flatcap_source_t *source, const void *payloads, const size_t *lengths,
                            size_t count);

/* Builds a sample in place: returns the place of a payload of up to `length` bytes, of any
 * alignment, or NULL if it is dropped. The same thread then calls flatcap_commit with the bytes it
 * has written, or flatcap_cancel, and pushes nothing in between. */
void *flatcap_begin(flatcap_source_t *source, size_t length);
int flatcap_commit(flatcap_source_t *source, size_t length);
void flatcap_cancel(flatcap_source_t *source);

/* Pushes one value, stamped now: the field NAME.value in recordings. `unit` is such as "Nm", of at most
 * 32 bytes; NULL for none. The first call with a name sets up a source. Returns 0, or why the value was
 * dropped, as flatcap_push does; -ENOSPC if the client has 64 sources, -EINVAL if a name or unit is not
 * valid. */
int flatcap_gauge(flatcap_t *client, const char *name, const char *unit, double value);

/* Fires the recorder's black box. 0, -ENOTCONN without a recorder, -EOPNOTSUPP if it refuses:
 * flatcap_error has the reason. `flags` is 0. */
int flatcap_trigger(flatcap_t *client, const char *reason, uint32_t flags);

/* How many samples of a source were dropped in this process. */
uint64_t flatcap_dropped(flatcap_source_t *source);

/* Whether a recorder is there. */
int flatcap_is_connected(flatcap_t *client);

/* The budget and limits of the recorder for pushed frames. Frames above them wait in the rings of the
 * threads. If a ring is full, `on_full` decides. */
typedef struct flatcap_budget {
    size_t size;                     /* sizeof(flatcap_budget_t), set by the caller */
    uint64_t cpu_ns_per_second;      /* CPU time for the frames of all users; 10^9 is one core */
    uint64_t user_frames_per_second; /* of this user; 0: unlimited */
    uint64_t user_bytes_per_second;  /* of this user; 0: unlimited */
} flatcap_budget_t;

/* Fills in the budget. Returns 0; -ENODATA before the first push of a connection, and if the recorder
 * is a version that does not state it; -EINVAL if a pointer is NULL or `size` too small. */
int flatcap_budget(flatcap_t *client, flatcap_budget_t *budget);

/* Copies what the recorder first refused, and last if that is another thing; without a connection,
 * why there is none. A string cut to `length`. Returns its whole length. */
size_t flatcap_error(flatcap_t *client, char *buffer, size_t length);

/* Closes a client; the recorder keeps what was pushed. Its pointers must not be used any more. */
void flatcap_close(flatcap_t *client);

#ifdef __cplusplus
}
#endif

#endif
