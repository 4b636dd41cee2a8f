/* Fanin: collectives between processes, summed by switches on the way. See docs/c.md.
 *
 * Made of crates/c by `scripts/c_library.py header`.
 * SPDX-License-Identifier: Apache-2.0
 */

#ifndef FANIN_H
#define FANIN_H

#include <stddef.h>
#include <stdint.h>

/*
 A process's place in a job, from `fanin_init`, `fanin_init_with` or `fanin_split` to `fanin_finalize`. Threads may share it: calls run one after
 the other, in the order in which they are made, which must be the same at all ranks.
 */
typedef struct fanin_comm fanin_comm;

/*
 A call in the background, from `fanin_..._start` to `fanin_wait`, `fanin_wait_all` or a `fanin_test` that finds it done. Vectors of the call stay
 where they are, and nobody touches them, until then.
 */
typedef struct fanin_request fanin_request;

/*
 Settings of a communicator, from `fanin_settings_new` to `fanin_settings_free`.
 */
typedef struct fanin_settings fanin_settings;

/*
 How a function has ended: `FANIN_OK`, or an error, which `fanin_error` explains.
 */
typedef int32_t fanin_status;

/*
 An element type: one of `FANIN_F32` and so on.
 */
typedef uint32_t fanin_type;

/*
 An operator: one of `FANIN_SUM` and so on.
 */
typedef uint32_t fanin_operator;

/*
 What is called for each notice, such as why nothing moves: with its text, which is the library's and stays until it returns, and the context that
 was given along. It may be called in any thread.
 */
typedef void (*fanin_notice)(const char *text, void *context);

/*
 All went well.
 */
#define FANIN_OK 0

/*
 An argument does not fit; nothing was done.
 */
#define FANIN_ERR_ARGUMENT 1

/*
 A setting, or a variable of the environment, makes no sense.
 */
#define FANIN_ERR_SETTING 2

/*
 The switch, the fabric's manager, or rank 0 in their place cannot be reached.
 */
#define FANIN_ERR_UNREACHABLE 3

/*
 The switch does not admit this rank.
 */
#define FANIN_ERR_REFUSED 4

/*
 The job has failed, at all ranks; the communicator can only be left.
 */
#define FANIN_ERR_FAILED 5

/*
 Sockets, threads or memory are not to be had.
 */
#define FANIN_ERR_SYSTEM 6

/*
 The communicator belongs to another process, from which this one was forked.
 */
#define FANIN_ERR_CLOSED 7

/*
 A bug of the library; please report it.
 */
#define FANIN_ERR_INTERNAL 8

/*
 IEEE 754 binary32.
 */
#define FANIN_F32 0

/*
 IEEE 754 binary64.
 */
#define FANIN_F64 1

/*
 Signed 32-bit integer; sums and products wrap, as for all integers.
 */
#define FANIN_I32 2

/*
 Signed 64-bit integer.
 */
#define FANIN_I64 3

/*
 IEEE 754 binary16; added up in binary32.
 */
#define FANIN_F16 4

/*
 The upper half of a binary32 (bfloat16); added up in binary32.
 */
#define FANIN_BF16 5

/*
 Signed 8-bit integer.
 */
#define FANIN_I8 6

/*
 Signed 16-bit integer.
 */
#define FANIN_I16 7

/*
 Unsigned 8-bit integer.
 */
#define FANIN_U8 8

/*
 The sum.
 */
#define FANIN_SUM 0

/*
 The product.
 */
#define FANIN_PROD 1

/*
 The smaller one; of a number and a NaN, the number (C's `fmin`).
 */
#define FANIN_MIN 2

/*
 The larger one; of a number and a NaN, the number (C's `fmax`).
 */
#define FANIN_MAX 3

/*
 The sum divided by the number of ranks; of floats only.
 */
#define FANIN_AVG 4

/*
 Bitwise and; of integers only, as all bit operators.
 */
#define FANIN_AND 5

/*
 Bitwise or.
 */
#define FANIN_OR 6

/*
 Bitwise exclusive or.
 */
#define FANIN_XOR 7

/*
 The smaller one; of floats, a NaN where either is one.
 */
#define FANIN_MINIMUM 8

/*
 The larger one; of floats, a NaN where either is one.
 */
#define FANIN_MAXIMUM 9

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Every rank gets the reduction of all vectors of so many elements.

 The caller sees to this:
 `comm` is a communicator. The vectors are that long, are the same or do not overlap, and nobody touches them meanwhile.
 */
fanin_status fanin_allreduce(const fanin_comm *comm, const void *input, void *output, size_t elements, fanin_type of, fanin_operator op);

/*
 `fanin_allreduce` in the background.

 The caller sees to this:
 As there, until the request is done; `request` may be written to.
 */
fanin_status fanin_allreduce_start(const fanin_comm *comm,
                                   const void *input,
                                   void *output,
                                   size_t elements,
                                   fanin_type of,
                                   fanin_operator op,
                                   fanin_request **request);

/*
 Rank `root` gets the reduction of all vectors of so many elements; of other ranks `output` is not looked at, and may be NULL.

 The caller sees to this:
 As `fanin_allreduce`.
 */
fanin_status fanin_reduce(const fanin_comm *comm,
                          const void *input,
                          void *output,
                          size_t elements,
                          fanin_type of,
                          fanin_operator op,
                          uint32_t root);

/*
 `fanin_reduce` in the background.

 The caller sees to this:
 As there, until the request is done; `request` may be written to.
 */
fanin_status fanin_reduce_start(const fanin_comm *comm,
                                const void *input,
                                void *output,
                                size_t elements,
                                fanin_type of,
                                fanin_operator op,
                                uint32_t root,
                                fanin_request **request);

/*
 Every rank gets rank `root`'s vector of so many elements.

 The caller sees to this:
 `comm` is a communicator. The vector is that long, and nobody touches it meanwhile.
 */
fanin_status fanin_broadcast(const fanin_comm *comm, void *vector, size_t elements, fanin_type of, uint32_t root);

/*
 `fanin_broadcast` in the background.

 The caller sees to this:
 As there, until the request is done; `request` may be written to.
 */
fanin_status fanin_broadcast_start(const fanin_comm *comm,
                                   void *vector,
                                   size_t elements,
                                   fanin_type of,
                                   uint32_t root,
                                   fanin_request **request);

/*
 Every rank gets its part of the reduction of all vectors: `output` has so many elements, `input` as many for each rank, in the order of ranks. The
 output may be the rank's own part of the input; what is in the other parts afterwards is not said.

 The caller sees to this:
 `comm` is a communicator. The vectors are that long, do not overlap otherwise, and nobody touches them meanwhile.
 */
fanin_status fanin_reduce_scatter(const fanin_comm *comm,
                                  const void *input,
                                  void *output,
                                  size_t elements,
                                  fanin_type of,
                                  fanin_operator op);

/*
 `fanin_reduce_scatter` in the background.

 The caller sees to this:
 As there, until the request is done; `request` may be written to.
 */
fanin_status fanin_reduce_scatter_start(const fanin_comm *comm,
                                        const void *input,
                                        void *output,
                                        size_t elements,
                                        fanin_type of,
                                        fanin_operator op,
                                        fanin_request **request);

/*
 Every rank gets the vectors of all ranks, in the order of ranks: `input` has so many elements, `output` as many for each rank. The input may be
 the rank's own part of the output.

 The caller sees to this:
 `comm` is a communicator. The vectors are that long, do not overlap otherwise, and nobody touches them meanwhile.
 */
fanin_status fanin_all_gather(const fanin_comm *comm,
                              const void *input,
                              void *output,
                              size_t elements,
                              fanin_type of);

/*
 `fanin_all_gather` in the background.

 The caller sees to this:
 As there, until the request is done; `request` may be written to.
 */
fanin_status fanin_all_gather_start(const fanin_comm *comm,
                                    const void *input,
                                    void *output,
                                    size_t elements,
                                    fanin_type of,
                                    fanin_request **request);

/*
 Returns once all ranks have called it.

 The caller sees to this:
 `comm` is a communicator.
 */
fanin_status fanin_barrier(const fanin_comm *comm);

/*
 `fanin_barrier` in the background.

 The caller sees to this:
 `comm` is a communicator; `request` may be written to.
 */
fanin_status fanin_barrier_start(const fanin_comm *comm, fanin_request **request);

/*
 Joins the job that the environment describes (FANIN_RANK, FANIN_WORLD, FANIN_SWITCH, ...; also what torchrun and mpirun set), and waits until all
 ranks have. Without any variable it is a job of one rank.

 The caller sees to this:
 `comm` may be written to.
 */
fanin_status fanin_init(fanin_comm **comm);

/*
 The same by settings, and behind them the environment where `environment` is not 0. Settings that say where ranks meet make variables void that do.

 The caller sees to this:
 The settings come from `fanin_settings_new`; `comm` may be written to.
 */
fanin_status fanin_init_with(const fanin_settings *settings,
                             int environment,
                             fanin_comm **comm);

/*
 Divides the ranks into communicators by `color`; within one, ranks are in the order of `key`, and of their present ranks where keys are equal. A
 rank with a negative color gets none: `group` is NULL then. All ranks call it.

 The caller sees to this:
 `comm` is a communicator; `group` may be written to.
 */
fanin_status fanin_split(const fanin_comm *comm,
                         int64_t color,
                         int64_t key,
                         fanin_comm **group);

/*
 Leaves the job, frees the communicator and makes it NULL; NULL does nothing. It is an error, and nothing is done, while calls in the background
 have not ended. Where the job has failed, it can still be left.

 The caller sees to this:
 `*comm` is a communicator or NULL; no other thread uses it.
 */
fanin_status fanin_finalize(fanin_comm **comm);

/*
 Ends the job at all ranks, with these words as the reason.

 The caller sees to this:
 `comm` is a communicator; the text ends with a zero byte.
 */
fanin_status fanin_abort(const fanin_comm *comm, const char *why);

/*
 This process's rank; -1 where `comm` is no communicator of this process.

 The caller sees to this:
 `comm` is a communicator or NULL.
 */
int64_t fanin_rank(const fanin_comm *comm);

/*
 The number of ranks; -1 where `comm` is no communicator of this process.

 The caller sees to this:
 `comm` is a communicator or NULL.
 */
int64_t fanin_world(const fanin_comm *comm);

/*
 Sets how long calls of this rank that are made from now on wait for other ranks or the switch, in seconds. The first rank that does not want to
 wait any longer ends the job, for all.

 The caller sees to this:
 `comm` is a communicator.
 */
fanin_status fanin_set_timeout(const fanin_comm *comm,
                               double seconds);

/*
 How vectors travel and why so, in words: as many as fit into `bytes` bytes at `to`, with a zero behind them. Gives the length of all of them, without
 the zero, as `snprintf` does; 0 where `comm` is no communicator of this process. `to` may be NULL where `bytes` is 0.

 The caller sees to this:
 `comm` is a communicator or NULL; `to` has room for so many bytes.
 */
size_t fanin_path(const fanin_comm *comm,
                  char *to,
                  size_t bytes);

/*
 The version of the library, as "0.2.0".
 */
const char *fanin_version(void);

/*
 What went wrong in this thread last, in words: job, rank and cause, as far as they are known; empty where nothing has. The text is the library's,
 and stays until the next error in this thread.
 */
const char *fanin_error(void);

/*
 The rank that the last error in this thread blames; -1 where it is not known.
 */
int64_t fanin_error_rank(void);

/*
 Waits until a call has ended, gives how, frees the request and makes it NULL; of NULL it is `FANIN_OK`.

 The caller sees to this:
 `*request` is a request or NULL; no other thread uses it.
 */
fanin_status fanin_wait(fanin_request **request);

/*
 Whether a call has ended. If it has, `*done` is 1, and all is as with `fanin_wait`; otherwise 0, and the status is `FANIN_OK`.

 The caller sees to this:
 `*request` is a request or NULL; no other thread uses it. `done` may be written to.
 */
fanin_status fanin_test(fanin_request **request, int *done);

/*
 `fanin_wait` for each of `count` requests; gives the first error of them, after all have ended.

 The caller sees to this:
 `requests` has so many requests, or NULL in place of some; no other thread uses them.
 */
fanin_status fanin_wait_all(size_t count, fanin_request **requests);

/*
 Settings of which none is given.
 */
fanin_settings *fanin_settings_new(void);

/*
 Frees settings; NULL does nothing.

 The caller sees to this:
 They come from `fanin_settings_new`, and are not used after that.
 */
void fanin_settings_free(fanin_settings *settings);

/*
 Gives a setting: `name` is that of a variable of the environment without its prefix, in small letters ("rank" for FANIN_RANK); what each means
 and takes is in docs/communicator.md. The value is looked at when the communicator is made.

 The caller sees to this:
 The settings are the caller's alone meanwhile; both texts end with a zero byte.
 */
fanin_status fanin_settings_set(fanin_settings *settings,
                                const char *name,
                                const char *value);

/*
 Has `notice` called for each notice, which goes to standard error otherwise; NULL keeps all of them quiet.

 The caller sees to this:
 The settings are the caller's alone meanwhile. Any thread may use `context`, for as long as there is a communicator of these settings or a group
 of one.
 */
fanin_status fanin_settings_notices(fanin_settings *settings,
                                    fanin_notice notice,
                                    void *context);

/*
 Bytes of an element of this type; 0 where there is none.
 */
size_t fanin_type_bytes(fanin_type of);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FANIN_H */
