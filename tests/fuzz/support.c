#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"

enum { PATH_SIZE = 512 };

static char folder[256];
static char written[8][PATH_SIZE]; /* names of files to remove */
static size_t written_count;
static struct hop_tokenizer *tokenizer;

void hop_fuzz_broken(const char *promise, const char *file, int line)
{
    fprintf(stderr, "%s:%d: broken: %s\n", file, line, promise);
    abort();
}

static bool is_one_line(const char *message)
{
    return message[0] && !strchr(message, '\n');
}

bool hop_fuzz_read(hop_status status, const struct hop_error *err)
{
    if (status == HOP_OK)
        return true;
    if ((status != HOP_INPUT && status != HOP_UNSUPPORTED) || !is_one_line(err->message)) {
        fprintf(stderr, "%s: %s\n", hop_status_text(status), err->message);
        abort();
    }
    return false;
}

void hop_fuzz_ok(hop_status status, const struct hop_error *err)
{
    if (status == HOP_OK)
        return;
    fprintf(stderr, "%s: %s\n", hop_status_text(status), err->message);
    abort();
}

static void clean_up(void)
{
    hop_tokenizer_free(tokenizer);
    for (size_t i = 0; i < written_count; i++)
        unlink(written[i]);
    if (folder[0])
        rmdir(folder);
}

/* Memory where there is such a folder: every input is written to a file. */
static const char *scratch_base(void)
{
    const char *const given = getenv("TMPDIR");
    if (given)
        return given;
    return access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
}

const char *hop_fuzz_folder(void)
{
    if (folder[0])
        return folder;
    hop_log_set_quiet(true);
    atexit(clean_up);
    snprintf(folder, sizeof folder, "%.200s/hop-fuzz-XXXXXX", scratch_base());
    HOP_FUZZ_EXPECT(mkdtemp(folder));
    return folder;
}

static void remember(const char *path)
{
    for (size_t i = 0; i < written_count; i++)
        if (!strcmp(written[i], path))
            return;
    HOP_FUZZ_EXPECT(written_count < sizeof written / sizeof *written);
    memcpy(written[written_count++], path, strlen(path) + 1);
}

const char *hop_fuzz_write(const char *name, const void *bytes, size_t n)
{
    static char path[PATH_SIZE];
    snprintf(path, sizeof path, "%s/%.100s", hop_fuzz_folder(), name);
    remember(path);
    FILE *const file = fopen(path, "wb");
    HOP_FUZZ_EXPECT(file && (n == 0 || fwrite(bytes, 1, n, file) == n) && fclose(file) == 0);
    return path;
}

struct hop_fuzz_part hop_fuzz_next(struct hop_fuzz_part *rest)
{
    const uint8_t *const end = rest->size ? memchr(rest->data, 0, rest->size) : NULL;
    struct hop_fuzz_part part = *rest;
    if (!end) {
        rest->size = 0;
        return part;
    }
    part.size = (size_t)(end - rest->data);
    rest->data = end + 1;
    rest->size -= part.size + 1;
    return part;
}

int32_t *hop_fuzz_words(const uint8_t *data, size_t size, size_t *count)
{
    struct hop_error err = {0};
    int32_t *words = NULL;
    *count = size / sizeof *words;
    hop_fuzz_ok(hop_calloc(&words, *count, sizeof *words, &err), &err);
    if (*count)
        memcpy(words, data, *count * sizeof *words);
    return words;
}

struct hop_tokenizer *hop_fuzz_tokenizer(void)
{
    struct hop_error err = {0};
    if (!tokenizer) {
        hop_fuzz_folder();
        hop_fuzz_ok(hop_tokenizer_load(HOP_SOURCE_DIR "/models/wordnet-3m", &tokenizer, &err),
                    &err);
    }
    return tokenizer;
}
