/* Natural text repeats its words; remembering their ids saves most of the merging. When full,
 * everything is forgotten: simpler than choosing, and the frequent words are back at once. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "text/tokenizer_internal.h"

enum { SLOTS = 1 << 18, SLOTS_USED = SLOTS / 2, KEYS_LIMIT = 1 << 23 };

struct hop_word_slot {
    uint32_t hash, key, ids; /* key and ids: offsets */
    uint16_t length, count;  /* length 0: free */
};

hop_status hop_word_cache_init(struct hop_word_cache *cache, struct hop_error *err)
{
    return hop_calloc(&cache->slots, SLOTS, sizeof *cache->slots, err);
}

static struct hop_word_slot *slot_of(const struct hop_word_cache *cache, const char *word, size_t n,
                                     uint32_t hash)
{
    for (size_t i = hash & (SLOTS - 1);; i = (i + 1) & (SLOTS - 1)) {
        struct hop_word_slot *const slot = &cache->slots[i];
        if (!slot->length || (slot->hash == hash && slot->length == n &&
                              !memcmp(cache->keys.data + slot->key, word, n)))
            return slot;
    }
}

const int32_t *hop_word_cache_get(const struct hop_word_cache *cache, const char *word, size_t n,
                                  size_t *count)
{
    const struct hop_word_slot *const slot = slot_of(cache, word, n, hop_hash_bytes(word, n));
    if (!slot->length)
        return NULL;
    *count = slot->count;
    return cache->ids.data + slot->ids;
}

hop_status hop_word_cache_put(struct hop_word_cache *cache, const char *word, size_t n,
                              const int32_t *ids, size_t count, struct hop_error *err)
{
    if (cache->used == SLOTS_USED || cache->keys.length > KEYS_LIMIT) {
        memset(cache->slots, 0, SLOTS * sizeof *cache->slots);
        cache->used = cache->keys.length = cache->ids.count = 0;
    }
    const uint32_t hash = hop_hash_bytes(word, n);
    const struct hop_word_slot slot = {.hash = hash,
                                       .key = (uint32_t)cache->keys.length,
                                       .ids = (uint32_t)cache->ids.count,
                                       .length = (uint16_t)n,
                                       .count = (uint16_t)count};
    HOP_TRY(hop_string_append(&cache->keys, word, n, err));
    HOP_TRY(hop_grow(&cache->ids.data, &cache->ids.capacity, cache->ids.count + count + 1,
                     sizeof *ids, err));
    if (count)
        memcpy(cache->ids.data + cache->ids.count, ids, count * sizeof *ids);
    cache->ids.count += count;
    *slot_of(cache, word, n, hash) = slot;
    cache->used++;
    return HOP_OK;
}

void hop_word_cache_free(struct hop_word_cache *cache)
{
    free(cache->slots);
    hop_string_free(&cache->keys);
    hop_ids_free(&cache->ids);
    *cache = (struct hop_word_cache){0};
}
