/* Forebay's engine in your own program. README.md has an example, examples/c the program.
 *
 * Every function may be called from any thread, returns FOREBAY_OK or a FOREBAY_ERROR_*, and says more in
 * forebay_last_error(). Made from src/ffi; do not edit. */

#ifndef FOREBAY_H
#define FOREBAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FOREBAY_OK 0

// A pointer that must point somewhere is null.
#define FOREBAY_ERROR_NULL -1

// The engine was destroyed, or never created.
#define FOREBAY_ERROR_HANDLE -2

// A value is out of range, text is not UTF-8, or the prompt does not fit.
#define FOREBAY_ERROR_ARGUMENT -3

// The configuration or the model cannot be used.
#define FOREBAY_ERROR_START -4

// No such request: it was read to its end, cancelled, or never submitted.
#define FOREBAY_ERROR_REQUEST -5

// The queue is full; try again later.
#define FOREBAY_ERROR_QUEUE_FULL -6

// The engine is ending, or has ended.
#define FOREBAY_ERROR_STOPPED -7

// The request was ended by somebody else's cancel.
#define FOREBAY_ERROR_CANCELLED -8

// The request failed in the engine; others are not touched.
#define FOREBAY_ERROR_FAILED -9

// A mistake of the library's.
#define FOREBAY_ERROR_PANIC -10

#define FOREBAY_POLICY_FAIR 0

#define FOREBAY_POLICY_LATENCY_FIRST 1

#define FOREBAY_POLICY_THROUGHPUT_FIRST 2

#define FOREBAY_POLICY_SLO 3

// More is to come.
#define FOREBAY_RUNNING 0

// An end token or a stop string.
#define FOREBAY_FINISHED_STOP 1

// `max_tokens`, or the context is full.
#define FOREBAY_FINISHED_LENGTH 2

#define FOREBAY_PRIORITY_LOW 0

#define FOREBAY_PRIORITY_NORMAL 1

#define FOREBAY_PRIORITY_HIGH 2

#define FOREBAY_PRIORITY_CRITICAL 3

// An engine. It has no inside that could be looked into.
typedef struct forebay_engine forebay_engine;

// How a completion is drawn. `forebay_params_init` sets each field to the model's default.
typedef struct {
  // -1: the rest of the context.
  int64_t max_tokens;
  // NaN: the model's default, as for the next three.
  double temperature;
  double top_p;
  double min_p;
  double repetition_penalty;
  // -1: the model's default; 0: no limit.
  int64_t top_k;
  // Used if `has_seed`; otherwise each request draws its own.
  int64_t seed;
  bool has_seed;
  // Goes on behind the model's end tokens.
  bool ignore_eos;
  // One of `FOREBAY_PRIORITY_*`.
  uint32_t priority;
  // A text that ends the completion and is no part of it; null: none.
  const char *stop;
} forebay_params;

// One message of a chat: UTF-8, ended by NUL.
typedef struct {
  const char *role;
  const char *content;
} forebay_message;

// What a poll gave.
typedef struct {
  // `FOREBAY_RUNNING`, or `FOREBAY_FINISHED_*` when everything has been given.
  uint32_t state;
  // Tokens drawn, the end token included; 0 while it runs.
  uint32_t completion_tokens;
  // Bytes written, without the NUL behind them.
  size_t text_bytes;
  // Token ids written.
  size_t token_count;
  size_t prompt_tokens;
  // Tokens of the prompt that were in the KV cache.
  size_t cached_tokens;
} forebay_output;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The message of this thread's last call that failed: UTF-8, valid until its next call. Empty before the first.
const char *forebay_last_error(void);

// Loads a model and starts its engine. `model` is a folder with safetensors, a GGUF file or a hub id, "" the embedded
// model; null: what `config_file` says. `config_file` is a `config.yaml` as of `forebay serve`; null: defaults. Returns
// when the model is loaded.
//
// # Safety
// `model` and `config_file` are null or end with NUL; `engine` is null or may be written.
int32_t forebay_engine_create(const char *model,
                              const char *config_file,
                              forebay_engine **engine);

// Ends an engine: its requests are cancelled and calls of other threads return. The handle is not valid any more.
int32_t forebay_engine_destroy(forebay_engine *engine);

// Sets every field of `params` to the model's default.
//
// # Safety
// `params` is null or may be written.
int32_t forebay_params_init(forebay_params *params);

// Queues the completion of a text. `params` may be null: defaults.
//
// # Safety
// `prompt` is null or ends with NUL; `params` is null or points to what `forebay_params_init` has set; `request` is null
// or may be written.
int32_t forebay_engine_submit(forebay_engine *engine,
                              const char *prompt,
                              const forebay_params *params,
                              uint64_t *request);

// Queues the completion of `count` tokens.
//
// # Safety
// As `forebay_engine_submit`; `tokens` is null or points to `count` ids.
int32_t forebay_engine_submit_tokens(forebay_engine *engine,
                                     const uint32_t *tokens,
                                     size_t count,
                                     const forebay_params *params,
                                     uint64_t *request);

// Queues the answer to a chat of `count` messages, rendered by the model's chat template.
//
// # Safety
// As `forebay_engine_submit`; `messages` is null or points to `count` messages, their texts end with NUL.
int32_t forebay_engine_submit_chat(forebay_engine *engine,
                                   const forebay_message *messages,
                                   size_t count,
                                   const forebay_params *params,
                                   uint64_t *request);

// Takes what is new of an answer. Waits up to `timeout_ms` while there is nothing; 0 does not wait. Writes whole UTF-8
// characters and a NUL to `text` (5 bytes at least), and token ids to `tokens`; what does not fit comes with the next
// call. `tokens` may be null with a capacity of 0: then they are dropped. When `output->state` is not `FOREBAY_RUNNING`,
// or the request failed, it is forgotten.
//
// # Safety
// `text`, `tokens` and `output` are null or may be written, for as many bytes and ids as their capacities say.
int32_t forebay_engine_poll(forebay_engine *engine,
                            uint64_t request,
                            uint32_t timeout_ms,
                            char *text,
                            size_t text_capacity,
                            uint32_t *tokens,
                            size_t token_capacity,
                            forebay_output *output);

// Ends a request and forgets it. A thread that polls it gets `FOREBAY_ERROR_CANCELLED`.
int32_t forebay_engine_cancel(forebay_engine *engine, uint64_t request);

// One of `FOREBAY_POLICY_*`, from the next step on. No request is lost by it.
int32_t forebay_engine_set_scheduling_policy(forebay_engine *engine, uint32_t policy);

// # Safety
// `policy` is null or may be written.
int32_t forebay_engine_scheduling_policy(forebay_engine *engine, uint32_t *policy);

// Tokens drawn since the engine was created.
//
// # Safety
// `total` is null or may be written.
int32_t forebay_engine_total_tokens(forebay_engine *engine, uint64_t *total);

// Tokens drawn in a second, since the engine was created or `forebay_engine_reset_stats_window` was called.
//
// # Safety
// `out` is null or may be written.
int32_t forebay_engine_tok_per_sec(forebay_engine *engine, double *out);

// Begins a new window of measurement.
int32_t forebay_engine_reset_stats_window(forebay_engine *engine);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FOREBAY_H */
