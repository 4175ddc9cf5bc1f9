/* What a C program may do wrong, and what must work all the same. Exit code 0 when everything held. */
#include <stdio.h>
#include <string.h>

#include "forebay.h"

static int failures = 0;

static void expect(const char *what, int got, int wanted) {
    if (got != wanted) {
        printf("%s: %d instead of %d (%s)\n", what, got, wanted, forebay_last_error());
        failures++;
    }
}

static void expect_true(const char *what, int holds) {
    if (!holds) {
        printf("%s does not hold\n", what);
        failures++;
    }
}

/* Reads an answer with room for `capacity` bytes and ids at a time. */
static int read_all(forebay_engine *engine, uint64_t request, size_t capacity, char *text, uint32_t *tokens,
                    size_t *count, forebay_output *output) {
    *count = 0;
    text[0] = 0;
    for (;;) {
        char piece[512];
        uint32_t ids[64];
        int code = forebay_engine_poll(engine, request, 60000, piece, capacity, ids, capacity < 64 ? 1 : 64, output);
        if (code != FOREBAY_OK) {
            return code;
        }
        expect_true("the text ends with NUL", strlen(piece) == output->text_bytes);
        strcat(text, piece);
        memcpy(tokens + *count, ids, output->token_count * sizeof *ids);
        *count += output->token_count;
        if (output->state != FOREBAY_RUNNING) {
            return code;
        }
    }
}

static void mistakes(forebay_engine *engine, const forebay_params *params) {
    forebay_engine *invented = (forebay_engine *)0xdeadbeef;
    forebay_output output;
    char text[16];
    uint64_t request, total;
    uint32_t policy;
    double rate;

    expect("create without a place", forebay_engine_create("", NULL, NULL), FOREBAY_ERROR_NULL);
    expect("create from nothing", forebay_engine_create("./no/such/model", NULL, &invented), FOREBAY_ERROR_START);
    expect_true("a failed call writes nothing", invented == (forebay_engine *)0xdeadbeef);
    expect_true("the error names the model", strstr(forebay_last_error(), "no/such/model") != NULL);
    expect("a file that is missing", forebay_engine_create("", "no.yaml", &invented), FOREBAY_ERROR_START);
    expect("a model that is no text", forebay_engine_create("\xff", NULL, &invented), FOREBAY_ERROR_ARGUMENT);

    forebay_engine *bad[] = {NULL, invented};
    int codes[] = {FOREBAY_ERROR_NULL, FOREBAY_ERROR_HANDLE};
    for (int i = 0; i < 2; i++) {
        expect("submit", forebay_engine_submit(bad[i], "a", params, &request), codes[i]);
        expect("poll", forebay_engine_poll(bad[i], 1, 0, text, sizeof text, NULL, 0, &output), codes[i]);
        expect("cancel", forebay_engine_cancel(bad[i], 1), codes[i]);
        expect("set policy", forebay_engine_set_scheduling_policy(bad[i], 0), codes[i]);
        expect("policy", forebay_engine_scheduling_policy(bad[i], &policy), codes[i]);
        expect("total tokens", forebay_engine_total_tokens(bad[i], &total), codes[i]);
        expect("tok per sec", forebay_engine_tok_per_sec(bad[i], &rate), codes[i]);
        expect("reset", forebay_engine_reset_stats_window(bad[i]), codes[i]);
    }
    expect("destroy nothing", forebay_engine_destroy(NULL), FOREBAY_ERROR_HANDLE);
    expect("destroy something else", forebay_engine_destroy(invented), FOREBAY_ERROR_HANDLE);

    expect("no prompt", forebay_engine_submit(engine, NULL, params, &request), FOREBAY_ERROR_NULL);
    expect("no place", forebay_engine_submit(engine, "a", params, NULL), FOREBAY_ERROR_NULL);
    expect("no text", forebay_engine_submit(engine, "\xc3\x28", params, &request), FOREBAY_ERROR_ARGUMENT);
    expect("an empty prompt", forebay_engine_submit(engine, "", params, &request), FOREBAY_ERROR_ARGUMENT);
    expect("no tokens", forebay_engine_submit_tokens(engine, NULL, 3, params, &request), FOREBAY_ERROR_NULL);
    uint32_t beyond[] = {4000000000u};
    expect("an unknown token", forebay_engine_submit_tokens(engine, beyond, 1, params, &request),
           FOREBAY_ERROR_ARGUMENT);
    expect("no tokens at all", forebay_engine_submit_tokens(engine, beyond, 0, params, &request),
           FOREBAY_ERROR_ARGUMENT);
    forebay_message nameless = {NULL, "hello"};
    expect("no messages", forebay_engine_submit_chat(engine, NULL, 1, params, &request), FOREBAY_ERROR_NULL);
    expect("no messages at all", forebay_engine_submit_chat(engine, &nameless, 0, params, &request),
           FOREBAY_ERROR_ARGUMENT);
    expect("no role", forebay_engine_submit_chat(engine, &nameless, 1, params, &request), FOREBAY_ERROR_NULL);

    forebay_params odd = *params;
    odd.temperature = -1;
    expect("temperature", forebay_engine_submit(engine, "a", &odd, &request), FOREBAY_ERROR_ARGUMENT);
    odd = *params;
    odd.priority = 9;
    expect("priority", forebay_engine_submit(engine, "a", &odd, &request), FOREBAY_ERROR_ARGUMENT);
    odd = *params;
    odd.max_tokens = -7;
    expect("max_tokens", forebay_engine_submit(engine, "a", &odd, &request), FOREBAY_ERROR_ARGUMENT);
    expect("policy 4", forebay_engine_set_scheduling_policy(engine, 4), FOREBAY_ERROR_ARGUMENT);
    expect("params", forebay_params_init(NULL), FOREBAY_ERROR_NULL);

    expect("an unknown request", forebay_engine_poll(engine, 99, 0, text, sizeof text, NULL, 0, &output),
           FOREBAY_ERROR_REQUEST);
    expect("its cancel", forebay_engine_cancel(engine, 99), FOREBAY_ERROR_REQUEST);
    expect("submit", forebay_engine_submit(engine, "a", params, &request), FOREBAY_OK);
    expect("no text", forebay_engine_poll(engine, request, 0, NULL, 16, NULL, 0, &output), FOREBAY_ERROR_NULL);
    expect("little text", forebay_engine_poll(engine, request, 0, text, 4, NULL, 0, &output), FOREBAY_ERROR_ARGUMENT);
    expect("no ids", forebay_engine_poll(engine, request, 0, text, 16, NULL, 5, &output), FOREBAY_ERROR_NULL);
    expect("no output", forebay_engine_poll(engine, request, 0, text, 16, NULL, 0, NULL), FOREBAY_ERROR_NULL);
    expect("cancel", forebay_engine_cancel(engine, request), FOREBAY_OK);
    expect("cancelled", forebay_engine_poll(engine, request, 0, text, 16, NULL, 0, &output), FOREBAY_ERROR_REQUEST);
}

static void answers(forebay_engine *engine, const forebay_params *params) {
    char one[4096], two[4096];
    uint32_t ids[64], others[64];
    size_t count, same;
    uint64_t request, total = 0;
    forebay_output output;

    expect("submit", forebay_engine_submit(engine, "Once upon a time", params, &request), FOREBAY_OK);
    expect("read", read_all(engine, request, 512, one, ids, &count, &output), FOREBAY_OK);
    expect_true("all tokens came", count == 12 && output.completion_tokens == 12);
    expect_true("it ended at its length", output.state == FOREBAY_FINISHED_LENGTH);
    expect_true("it had a prompt", output.prompt_tokens > 0);

    expect("submit", forebay_engine_submit(engine, "Once upon a time", params, &request), FOREBAY_OK);
    expect("read in small pieces", read_all(engine, request, 5, two, others, &same, &output), FOREBAY_OK);
    expect_true("the same text", strcmp(one, two) == 0);
    expect_true("the same tokens", same == count && memcmp(ids, others, count * sizeof *ids) == 0);

    /* The completion's own tokens as a prompt. */
    expect("tokens", forebay_engine_submit_tokens(engine, ids, count, params, &request), FOREBAY_OK);
    expect("read", read_all(engine, request, 512, two, others, &same, &output), FOREBAY_OK);
    expect_true("its prompt", output.prompt_tokens == count);

    forebay_message chat[] = {{"user", "Tell me a story."}};
    expect("a chat", forebay_engine_submit_chat(engine, chat, 1, params, &request), FOREBAY_OK);
    expect("read", read_all(engine, request, 512, two, others, &same, &output), FOREBAY_OK);
    expect_true("it said something", strlen(two) > 0);

    expect("total", forebay_engine_total_tokens(engine, &total), FOREBAY_OK);
    expect_true("the tokens were counted", total >= 48);
    for (uint32_t policy = 0; policy < 4; policy++) {
        uint32_t now = 9;
        expect("set policy", forebay_engine_set_scheduling_policy(engine, policy), FOREBAY_OK);
        expect("policy", forebay_engine_scheduling_policy(engine, &now), FOREBAY_OK);
        expect_true("the policy is in force", now == policy);
    }
    double rate = -1;
    expect("rate", forebay_engine_tok_per_sec(engine, &rate), FOREBAY_OK);
    expect_true("something was drawn", rate > 0);
    expect("reset", forebay_engine_reset_stats_window(engine), FOREBAY_OK);
    expect("rate", forebay_engine_tok_per_sec(engine, &rate), FOREBAY_OK);
    expect_true("a new window has nothing", rate == 0);
}

int main(void) {
    forebay_engine *engine = NULL, *second = NULL;
    expect("create", forebay_engine_create("", NULL, &engine), FOREBAY_OK);
    if (engine == NULL) {
        return 1;
    }
    forebay_params params;
    expect("params", forebay_params_init(&params), FOREBAY_OK);
    params.max_tokens = 12;
    params.temperature = 0;
    params.ignore_eos = true;
    mistakes(engine, &params);
    answers(engine, &params);
    /* Two engines live side by side; what is destroyed is no handle any more. */
    expect("a second", forebay_engine_create("", NULL, &second), FOREBAY_OK);
    expect("destroy", forebay_engine_destroy(engine), FOREBAY_OK);
    expect("destroy again", forebay_engine_destroy(engine), FOREBAY_ERROR_HANDLE);
    expect("reset what is gone", forebay_engine_reset_stats_window(engine), FOREBAY_ERROR_HANDLE);
    answers(second, &params);
    expect("destroy", forebay_engine_destroy(second), FOREBAY_OK);
    printf("%d failures\n", failures);
    return failures != 0;
}
