/* Tokens by id and by content. Contents lie one after another in one buffer; the hash table keeps
 * ids. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "text/tokenizer_internal.h"

static uint64_t mix(uint64_t h)
{
    h ^= h >> 32;
    h *= UINT64_C(0x9E3779B97F4A7C15);
    return h ^ h >> 29;
}

uint32_t hop_hash_bytes(const char *text, size_t n)
{
    uint64_t h = n * UINT64_C(0xD6E8FEB86659FD93);
    while (n >= 8) {
        uint64_t word;
        memcpy(&word, text, 8);
        h = mix(h ^ word);
        text += 8;
        n -= 8;
    }
    uint64_t rest = 0;
    memcpy(&rest, text, n);
    return (uint32_t)mix(mix(h ^ rest));
}

/* The slot that holds content, or the free slot where it belongs. */
static struct hop_vocabulary_slot *slot_of(const struct hop_vocabulary *v, const char *content,
                                           size_t n, uint32_t hash)
{
    for (size_t i = hash & (v->slot_count - 1);; i = (i + 1) & (v->slot_count - 1)) {
        struct hop_vocabulary_slot *const slot = &v->slots[i];
        if (slot->id < 0)
            return slot;
        const struct hop_token *const token = &v->tokens[slot->id];
        if (slot->hash == hash && token->length == n &&
            !memcmp(v->text.data + token->offset, content, n))
            return slot;
    }
}

static hop_status grow_slots(struct hop_vocabulary *v, struct hop_error *err)
{
    if (v->used * 2 < v->slot_count)
        return HOP_OK;
    struct hop_vocabulary wider = *v;
    wider.slot_count = v->slot_count ? v->slot_count * 2 : 1024;
    HOP_TRY(hop_calloc(&wider.slots, wider.slot_count, sizeof *wider.slots, err));
    for (size_t i = 0; i < wider.slot_count; i++)
        wider.slots[i].id = -1;
    for (size_t i = 0; i < v->slot_count; i++) {
        size_t at = v->slots[i].hash & (wider.slot_count - 1);
        if (v->slots[i].id < 0)
            continue;
        while (wider.slots[at].id >= 0)
            at = (at + 1) & (wider.slot_count - 1);
        wider.slots[at] = v->slots[i];
    }
    free(v->slots);
    *v = wider;
    return HOP_OK;
}

/* Makes room for id; new ids are absent. */
static hop_status grow_tokens(struct hop_vocabulary *v, size_t id, struct hop_error *err)
{
    if (id < v->count)
        return HOP_OK;
    HOP_TRY(hop_grow(&v->tokens, &v->capacity, id + 1, sizeof *v->tokens, err));
    memset(v->tokens + v->count, 0, (id + 1 - v->count) * sizeof *v->tokens);
    v->count = id + 1;
    return HOP_OK;
}

static hop_status check_new(const struct hop_vocabulary *v, const char *content, size_t n,
                            int64_t id, const char *path, struct hop_error *err)
{
    if (id < 0 || id >= HOP_TOKEN_ID_LIMIT)
        return hop_fail(err, HOP_INPUT, "%s: id %lld of token \"%.100s\" is not in 0..%d", path,
                        (long long)id, content, HOP_TOKEN_ID_LIMIT - 1);
    const struct hop_token *const other = hop_vocabulary_token(v, (int32_t)id);
    if (other)
        return hop_fail(err, HOP_INPUT,
                        "%s: id %lld is used twice, by \"%.*s\" and \"%.100s\"; ids must be unique",
                        path, (long long)id, (int)(other->length < 100 ? other->length : 100),
                        v->text.data + other->offset, content);
    const int32_t first = hop_vocabulary_find(v, content, n);
    if (first >= 0)
        return hop_fail(err, HOP_INPUT, "%s: token \"%.100s\" has two ids, %d and %lld", path,
                        content, first, (long long)id);
    return HOP_OK;
}

/* Offsets in the buffer are 32 bits. */
static hop_status append_text(struct hop_vocabulary *v, const char *text, size_t n,
                              const char *path, uint32_t *offset, struct hop_error *err)
{
    if (n > UINT32_MAX - v->text.length)
        return hop_fail(err, HOP_UNSUPPORTED, "%s: the vocabulary's text is over 4 GiB", path);
    *offset = (uint32_t)v->text.length;
    return hop_string_append(&v->text, text, n, err);
}

hop_status hop_vocabulary_add(struct hop_vocabulary *v, const char *content, size_t n, int64_t id,
                              const char *path, struct hop_error *err)
{
    HOP_TRY(check_new(v, content, n, id, path, err));
    HOP_TRY(grow_slots(v, err));
    HOP_TRY(grow_tokens(v, (size_t)id, err));
    const uint32_t hash = hop_hash_bytes(content, n);
    struct hop_vocabulary_slot *const slot = slot_of(v, content, n, hash);
    uint32_t offset = 0;
    HOP_TRY(append_text(v, content, n, path, &offset, err));
    v->tokens[id] = (struct hop_token){.offset = offset,
                                       .length = (uint32_t)n,
                                       .shown = offset,
                                       .shown_length = (uint32_t)n,
                                       .present = true};
    *slot = (struct hop_vocabulary_slot){.hash = hash, .id = (int32_t)id};
    v->used++;
    return HOP_OK;
}

hop_status hop_vocabulary_show(struct hop_vocabulary *v, int32_t id, const char *text, size_t n,
                               const char *path, struct hop_error *err)
{
    HOP_TRY(append_text(v, text, n, path, &v->tokens[id].shown, err));
    v->tokens[id].shown_length = (uint32_t)n;
    return HOP_OK;
}

int32_t hop_vocabulary_find(const struct hop_vocabulary *v, const char *content, size_t n)
{
    if (!v->slot_count)
        return -1;
    return slot_of(v, content, n, hop_hash_bytes(content, n))->id;
}

const struct hop_token *hop_vocabulary_token(const struct hop_vocabulary *v, int32_t id)
{
    if (id < 0 || (size_t)id >= v->count || !v->tokens[id].present)
        return NULL;
    return &v->tokens[id];
}

void hop_vocabulary_free(struct hop_vocabulary *v)
{
    hop_string_free(&v->text);
    free(v->tokens);
    free(v->slots);
    *v = (struct hop_vocabulary){0};
}
