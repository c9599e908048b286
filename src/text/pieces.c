/* The list of pieces that flows through the tokenizer's stages. */
#include <stdlib.h>

#include "base/memory.h"
#include "text/tokenizer_internal.h"

hop_status hop_pieces_add(struct hop_pieces *pieces, struct hop_piece piece, struct hop_error *err)
{
    HOP_TRY(
        hop_grow(&pieces->items, &pieces->capacity, pieces->count + 1, sizeof *pieces->items, err));
    pieces->items[pieces->count++] = piece;
    return HOP_OK;
}

void hop_pieces_clear(struct hop_pieces *pieces)
{
    pieces->text.length = 0;
    pieces->count = 0;
}

void hop_pieces_swap(struct hop_pieces *a, struct hop_pieces *b)
{
    const struct hop_pieces old = *a;
    *a = *b;
    *b = old;
}

void hop_pieces_free(struct hop_pieces *pieces)
{
    hop_string_free(&pieces->text);
    free(pieces->items);
    *pieces = (struct hop_pieces){0};
}

hop_status hop_pieces_rewrite(struct hop_pieces *pieces, struct hop_pieces *scratch,
                              hop_rewrite rewrite, const void *step, struct hop_error *err)
{
    hop_pieces_clear(scratch);
    for (size_t i = 0; i < pieces->count; i++) {
        struct hop_piece piece = pieces->items[i];
        const size_t begin = scratch->text.length;
        if (piece.id < 0) {
            HOP_TRY(rewrite(step, pieces->text.data + piece.begin, piece.end - piece.begin,
                            piece.first, &scratch->text, err));
            if (scratch->text.length == begin)
                continue;
        }
        piece.begin = begin;
        piece.end = scratch->text.length;
        HOP_TRY(hop_pieces_add(scratch, piece, err));
    }
    hop_pieces_swap(pieces, scratch);
    return HOP_OK;
}

hop_status hop_pieces_divide(struct hop_pieces *pieces, struct hop_pieces *scratch,
                             hop_divide divide, const void *step, struct hop_error *err)
{
    hop_pieces_clear(scratch);
    for (size_t i = 0; i < pieces->count; i++) {
        const struct hop_piece piece = pieces->items[i];
        if (piece.id >= 0)
            HOP_TRY(hop_pieces_add(scratch, piece, err));
        else
            HOP_TRY(divide(step, pieces->text.data + piece.begin, piece, scratch, err));
    }
    hop_pieces_swap(pieces, scratch);
    const struct hop_string text = pieces->text;
    pieces->text = scratch->text;
    scratch->text = text;
    return HOP_OK;
}
