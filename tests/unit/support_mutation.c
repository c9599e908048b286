#include "support_mutation.h"

#include <stdlib.h>

#include "support_files.h"

#include "base/random.h"

enum { ROUNDS = 3000 };

struct text {
    unsigned char bytes[2 * HOP_TEST_MUTATION_SIZE];
    size_t n;
};

/* A draw below `limit`, numbered inside the round. */
static size_t draw(uint32_t round, uint32_t number, size_t limit)
{
    const struct hop_random_key key = {
        .seed = 1, .domain = HOP_RANDOM_SAMPLE, .step = round, .parameter = number};
    float value;
    hop_random_uniform(&key, 0, 1, &value);
    return (size_t)(value * (float)limit);
}

static unsigned char hostile_byte(size_t choice)
{
    static const unsigned char bytes[] = "\0\xff\x80\"'[]{}:,\\\n\r\t -0e&*!";
    return bytes[choice % (sizeof bytes - 1)];
}

static void mutate_once(struct text *t, uint32_t round, uint32_t number)
{
    const size_t kind = draw(round, number, 5), at = draw(round, number + 1, t->n);
    const size_t left = t->n - at, span = draw(round, number + 2, left < 16 ? left : 16);
    if (t->n == 0)
        return;
    switch (kind) {
    case 0:
        t->bytes[at] ^= (unsigned char)(1u << draw(round, number + 3, 8));
        break;
    case 1:
        t->bytes[at] = hostile_byte(draw(round, number + 3, 64));
        break;
    case 2:
        t->n = at;
        break;
    case 3:
        memmove(t->bytes + at, t->bytes + at + span, left - span);
        t->n -= span;
        break;
    default:
        memmove(t->bytes + at + span, t->bytes + at, left);
        t->n += span;
    }
}

static void mutate(const struct text *from, uint32_t round, struct text *to)
{
    *to = *from;
    const size_t times = 1 + draw(round, 0, 3);
    for (uint32_t i = 0; i < times; i++)
        mutate_once(to, round, 1 + 4 * i);
}

static void assert_read_or_refused(hop_status status, const struct hop_error *err, uint32_t round)
{
    const char *const message = status == HOP_OK ? "" : err->message;
    if (status != HOP_OK && status != HOP_INPUT && status != HOP_UNSUPPORTED)
        fail_msg("round %u: %s: %s", round, hop_status_text(status), message);
    if (strchr(message, '\n') || (status != HOP_OK && !message[0]))
        fail_msg("round %u: the message is not one line: %s", round, message);
}

void hop_test_mutate(const char *name, const void *bytes, size_t n,
                     hop_status (*read)(const char *path), const struct hop_error *err)
{
    struct text from = {.n = n}, *const damaged = malloc(sizeof *damaged);
    size_t refused = 0;
    assert_in_range(n, 1, HOP_TEST_MUTATION_SIZE);
    memcpy(from.bytes, bytes, n);
    const char *const path = hop_test_write(name, bytes, n);
    hop_test_ok(read(path), err, __FILE__, __LINE__);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        mutate(&from, round, damaged);
        hop_test_write(name, damaged->bytes, damaged->n);
        const hop_status status = read(path);
        assert_read_or_refused(status, err, round);
        refused += status != HOP_OK;
    }
    print_message("%s: %zu of %d refused\n", name, refused, ROUNDS);
    assert_in_range(refused, 1, ROUNDS);
    free(damaged);
}

void hop_test_mutate_text(const char *name, const char *text, hop_status (*read)(const char *path),
                          const struct hop_error *err)
{
    hop_test_mutate(name, text, strlen(text), read, err);
}
