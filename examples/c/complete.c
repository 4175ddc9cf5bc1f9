/* Completes a prompt and prints it as it is written.
 *
 *     make capi
 *     cc -Iinclude examples/c/complete.c -Ltarget/release -lforebay -Wl,-rpath,target/release -o complete
 *     ./complete "" "Once upon a time"         # "" is the embedded model; else a folder, a GGUF file or a hub id
 */
#include <stdio.h>

#include "forebay.h"

static int fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, forebay_last_error());
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s MODEL PROMPT\n", argv[0]);
        return 2;
    }
    forebay_engine *engine = NULL;
    if (forebay_engine_create(argv[1], NULL, &engine) != FOREBAY_OK) {
        return fail("create");
    }
    forebay_params params;
    forebay_params_init(&params);
    params.max_tokens = 64;
    params.temperature = 0;

    uint64_t request = 0;
    if (forebay_engine_submit(engine, argv[2], &params, &request) != FOREBAY_OK) {
        return fail("submit");
    }
    forebay_output output = {0};
    do {
        char text[256];
        if (forebay_engine_poll(engine, request, 1000, text, sizeof text, NULL, 0, &output) != FOREBAY_OK) {
            return fail("poll");
        }
        fputs(text, stdout);
        fflush(stdout);
    } while (output.state == FOREBAY_RUNNING);

    double rate = 0;
    forebay_engine_tok_per_sec(engine, &rate);
    printf("\n");
    fprintf(stderr, "%u tokens, %.0f a second\n", output.completion_tokens, rate);
    return forebay_engine_destroy(engine) == FOREBAY_OK ? 0 : fail("destroy");
}
