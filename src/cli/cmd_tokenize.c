/* hybridop tokenize: standard input, one text a line, to token ids, and back. */
#include <argp.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include <jansson.h>

#include "cli/commands.h"
#include "text/tokenizer.h"

enum { OPTION_MODEL = 'm', OPTION_JSON = 0x100, OPTION_ADD_SPECIAL, OPTION_DECODE };

struct options {
    const char *model;
    bool json, add_special, decode;
};

/* What a line passes through; the buffers are kept from line to line. */
struct session {
    const struct options *options;
    struct hop_tokenizer *tokenizer;
    struct hop_ids ids;
    struct hop_string text;
};

static error_t parse_option(int key, char *value, struct argp_state *state)
{
    struct options *const options = state->input;
    switch (key) {
    case OPTION_MODEL:
        options->model = value;
        return 0;
    case OPTION_JSON:
        options->json = true;
        return 0;
    case OPTION_ADD_SPECIAL:
        options->add_special = true;
        return 0;
    case OPTION_DECODE:
        options->decode = true;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "\"%s\" is not expected: the texts are read from standard input", value);
        return EINVAL;
    case ARGP_KEY_END:
        if (!options->model)
            argp_error(state, "--model DIR is missing: the folder that holds tokenizer.json");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option option_table[] = {
    {"model", OPTION_MODEL, "DIR", 0, "The model's folder, which holds tokenizer.json", 0},
    {"json", OPTION_JSON, NULL, 0, "Lines are JSON: strings for texts, arrays for ids", 0},
    {"add-special", OPTION_ADD_SPECIAL, NULL, 0,
     "Add the tokens the model puts around a text (BOS and the like)", 0},
    {"decode", OPTION_DECODE, NULL, 0, "From ids to text", 0},
    {0}};

static const struct argp parser = {
    .options = option_table,
    .parser = parse_option,
    .doc = "Turns each line of standard input into token ids separated by spaces, or back.",
};

/* ---- reading a line ---- */

static hop_status parse_json(const char *line, size_t length, json_t **out, struct hop_error *err)
{
    json_error_t reason;
    *out = json_loadb(line, length, JSON_DECODE_ANY | JSON_ALLOW_NUL, &reason);
    if (!*out)
        return hop_fail(err, HOP_INPUT, "not valid JSON: %s", reason.text);
    return HOP_OK;
}

static hop_status read_json_ids(const json_t *list, struct hop_ids *out, struct hop_error *err)
{
    if (!json_is_array(list))
        return hop_fail(err, HOP_INPUT, "a JSON array of token ids is needed");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *const json = json_array_get(list, i);
        const json_int_t id = json_integer_value(json);
        if (!json_is_integer(json) || id < 0 || id > INT32_MAX)
            return hop_fail(err, HOP_INPUT, "item %zu is not a token id", i + 1);
        HOP_TRY(hop_ids_append(out, (int32_t)id, err));
    }
    return HOP_OK;
}

/* `line` is NUL-terminated. */
static hop_status read_plain_ids(const char *line, size_t length, struct hop_ids *out,
                                 struct hop_error *err)
{
    const char *at = line;
    for (;;) {
        at += strspn(at, " \t\r");
        if (at == line + length)
            return HOP_OK;
        char *end;
        errno = 0;
        const long id = strtol(at, &end, 10);
        if (end == at || errno || id < 0 || id > INT32_MAX || !memchr(" \t\r", *end, 4))
            return hop_fail(err, HOP_INPUT, "\"%.20s\" is not a token id", at);
        HOP_TRY(hop_ids_append(out, (int32_t)id, err));
        at = end;
    }
}

/* ---- writing a line ---- */

static void write_ids(const struct hop_ids *ids, bool json)
{
    if (json)
        putchar('[');
    for (size_t i = 0; i < ids->count; i++) {
        if (i)
            putchar(json ? ',' : ' ');
        printf("%d", ids->data[i]);
    }
    if (json)
        putchar(']');
    putchar('\n');
}

static hop_status write_text(const struct hop_string *text, bool json, struct hop_error *err)
{
    if (!json) {
        fwrite(hop_string_text(text), 1, text->length, stdout);
        putchar('\n');
        return HOP_OK;
    }
    json_t *const value = json_stringn(hop_string_text(text), text->length);
    if (!value)
        return hop_fail(err, HOP_MEMORY, "out of memory for a text of %zu bytes", text->length);
    json_dumpf(value, stdout, JSON_ENCODE_ANY);
    putchar('\n');
    json_decref(value);
    return HOP_OK;
}

/* ---- a line ---- */

static hop_status encode_line(struct session *s, const char *line, size_t length,
                              struct hop_error *err)
{
    json_t *json = NULL;
    hop_status status;
    if (s->options->json) {
        HOP_TRY(parse_json(line, length, &json, err));
        if (!json_is_string(json)) {
            status = hop_fail(err, HOP_INPUT, "a JSON string is needed");
            goto done;
        }
        line = json_string_value(json);
        length = json_string_length(json);
    }
    HOP_TRY_DONE(
        hop_tokenizer_encode(s->tokenizer, line, length, s->options->add_special, &s->ids, err));
    write_ids(&s->ids, s->options->json);
done:
    json_decref(json);
    return status;
}

static hop_status decode_line(struct session *s, const char *line, size_t length,
                              struct hop_error *err)
{
    if (s->options->json) {
        json_t *json;
        HOP_TRY(parse_json(line, length, &json, err));
        const hop_status status = read_json_ids(json, &s->ids, err);
        json_decref(json);
        HOP_TRY(status);
    } else {
        HOP_TRY(read_plain_ids(line, length, &s->ids, err));
    }
    HOP_TRY(hop_tokenizer_decode(s->tokenizer, s->ids.data, s->ids.count, false, &s->text, err));
    return write_text(&s->text, s->options->json, err);
}

static hop_status run_line(struct session *s, const char *line, size_t length, size_t number,
                           struct hop_error *err)
{
    s->ids.count = 0;
    s->text.length = 0;
    const hop_status status =
        s->options->decode ? decode_line(s, line, length, err) : encode_line(s, line, length, err);
    return status == HOP_OK ? status : hop_wrap(err, "standard input:%zu", number);
}

static hop_status run_lines(struct session *s, struct hop_error *err)
{
    char *line = NULL;
    size_t capacity = 0, number = 0;
    ssize_t length;
    hop_status status = HOP_OK;
    while (status == HOP_OK && (length = getline(&line, &capacity, stdin)) >= 0) {
        if (length && line[length - 1] == '\n')
            line[--length] = '\0';
        status = run_line(s, line, (size_t)length, ++number, err);
    }
    free(line);
    if (status == HOP_OK && ferror(stdin))
        status = hop_fail(err, HOP_IO, "standard input:%zu: reading failed: %s", number + 1,
                          strerror(errno));
    if (fflush(stdout) && status == HOP_OK)
        status = hop_fail(err, HOP_IO, "standard output: writing failed: %s", strerror(errno));
    return status;
}

static hop_status run(void *options, struct hop_error *err)
{
    struct session session = {.options = options};
    hop_status status = hop_tokenizer_load(session.options->model, &session.tokenizer, err);
    if (status == HOP_OK)
        status = run_lines(&session, err);
    hop_string_free(&session.text);
    hop_ids_free(&session.ids);
    hop_tokenizer_free(session.tokenizer);
    return status;
}

int hop_cmd_tokenize(int argc, char **argv)
{
    struct options options = {0};
    return hop_command(&parser, argc, argv, &options, run);
}
