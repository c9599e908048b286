/* Pre-tokenizers. Each becomes one to three primitive steps:
 *   Split, Digits, Punctuation, Whitespace, WhitespaceSplit   split
 *   ByteLevel                                                 prefix space?, split?, map bytes
 *   Metaspace                                                 mark spaces, split? */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "io/json.h"
#include "text/tokenizer_internal.h"

enum kind { SPLIT, PREFIX_SPACE, MAP_BYTES, MARK_SPACES };

enum behavior { REMOVED, ISOLATED, MERGED_WITH_PREVIOUS, MERGED_WITH_NEXT, CONTIGUOUS };

enum prepend { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER };

struct hop_pretokenizer_step {
    enum kind kind;
    struct hop_pattern *pattern; /* of SPLIT and MARK_SPACES */
    enum behavior behavior;
    bool invert;
    char *mark; /* stands for a space */
    enum prepend prepend;
};

#define GPT2_PATTERN                                                                               \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* ---- reading ---- */

static hop_status new_step(struct hop_pretokenizer *p, enum kind kind,
                           struct hop_pretokenizer_step **out, struct hop_error *err)
{
    HOP_TRY(hop_grow(&p->steps, &p->capacity, p->count + 1, sizeof *p->steps, err));
    *out = &p->steps[p->count++];
    **out = (struct hop_pretokenizer_step){.kind = kind};
    return HOP_OK;
}

static hop_status add_split(struct hop_pretokenizer *p, const char *regex, enum behavior behavior,
                            const char *path, struct hop_error *err)
{
    struct hop_pretokenizer_step *step;
    HOP_TRY(new_step(p, SPLIT, &step, err));
    step->behavior = behavior;
    return hop_pattern_regex(regex, path, &step->pattern, err);
}

static hop_status read_behavior(const struct hop_component *c, enum behavior *out,
                                struct hop_error *err)
{
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    const char *name;
    HOP_TRY(hop_component_text(c, "behavior", &name, err));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i])) {
            *out = (enum behavior)i;
            return HOP_OK;
        }
    return hop_component_bad(
        c, "behavior", "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous", err);
}

static hop_status read_split(const struct hop_component *c, struct hop_pretokenizer *p,
                             struct hop_error *err)
{
    struct hop_pretokenizer_step *step;
    HOP_TRY(new_step(p, SPLIT, &step, err));
    HOP_TRY(read_behavior(c, &step->behavior, err));
    HOP_TRY(hop_json_get_bool(c->json, "invert", c->path, false, &step->invert, err));
    return hop_pattern_read(c, "pattern", &step->pattern, err);
}

static hop_status read_byte_level(const struct hop_component *c, struct hop_pretokenizer *p,
                                  struct hop_error *err)
{
    struct hop_pretokenizer_step *step;
    bool prefix, split;
    HOP_TRY(hop_json_get_bool(c->json, "add_prefix_space", c->path, true, &prefix, err));
    HOP_TRY(hop_json_get_bool(c->json, "use_regex", c->path, true, &split, err));
    if (prefix)
        HOP_TRY(new_step(p, PREFIX_SPACE, &step, err));
    if (split)
        HOP_TRY(add_split(p, GPT2_PATTERN, ISOLATED, c->path, err));
    return new_step(p, MAP_BYTES, &step, err);
}

/* Older files have add_prefix_space instead of prepend_scheme. */
static hop_status read_prepend(const struct hop_component *c, enum prepend *out,
                               struct hop_error *err)
{
    const char *name;
    bool prefix;
    HOP_TRY(hop_json_get_bool(c->json, "add_prefix_space", c->path, true, &prefix, err));
    HOP_TRY(hop_json_get_string(c->json, "prepend_scheme", c->path, prefix ? "always" : "never",
                                &name, err));
    if (!strcmp(name, "always"))
        *out = PREPEND_ALWAYS;
    else if (!strcmp(name, "first"))
        *out = PREPEND_FIRST;
    else if (!strcmp(name, "never"))
        *out = PREPEND_NEVER;
    else
        return hop_component_bad(c, "prepend_scheme", "always, first or never", err);
    return HOP_OK;
}

static hop_status read_metaspace(const struct hop_component *c, struct hop_pretokenizer *p,
                                 struct hop_error *err)
{
    struct hop_pretokenizer_step *step;
    const char *mark;
    bool split;
    HOP_TRY(hop_component_text(c, "replacement", &mark, err));
    if (!*mark)
        return hop_component_bad(c, "replacement", "one character", err);
    HOP_TRY(hop_json_get_bool(c->json, "split", c->path, true, &split, err));
    HOP_TRY(new_step(p, MARK_SPACES, &step, err));
    HOP_TRY(read_prepend(c, &step->prepend, err));
    HOP_TRY(hop_string_copy(&step->mark, mark, err));
    HOP_TRY(hop_pattern_literal(" ", &step->pattern, err));
    if (!split)
        return HOP_OK;
    HOP_TRY(new_step(p, SPLIT, &step, err));
    step->behavior = MERGED_WITH_NEXT;
    return hop_pattern_literal(mark, &step->pattern, err);
}

static hop_status read_digits(const struct hop_component *c, struct hop_pretokenizer *p,
                              struct hop_error *err)
{
    bool single;
    HOP_TRY(hop_json_get_bool(c->json, "individual_digits", c->path, false, &single, err));
    return add_split(p, "\\p{N}", single ? ISOLATED : CONTIGUOUS, c->path, err);
}

/* ASCII's symbols count as punctuation; the reference's table is that of Unicode 8, without what
 * came later. */
#define PUNCTUATION                                                                                \
    "(?![\\x{61D}\\x{9FD}\\x{A76}\\x{C77}\\x{C84}\\x{1B4E}\\x{1B4F}\\x{1B7D}-\\x{1B7F}\\x{2E43}-"  \
    "\\x{2E4F}"                                                                                    \
    "\\x{2E52}-\\x{2E5D}\\x{10D6E}\\x{10EAD}\\x{10F55}-\\x{10F59}\\x{10F86}-\\x{10F89}"            \
    "\\x{113D4}-\\x{113D5}\\x{113D7}-\\x{113D8}\\x{1144B}-\\x{1144F}\\x{1145A}-\\x{1145B}\\x{"     \
    "1145D}"                                                                                       \
    "\\x{11660}-\\x{1166C}\\x{116B9}\\x{1183B}\\x{11944}-\\x{11946}\\x{119E2}\\x{11A3F}-\\x{"      \
    "11A46}"                                                                                       \
    "\\x{11A9A}-\\x{11A9C}\\x{11A9E}-\\x{11AA2}\\x{11B00}-\\x{11B09}\\x{11BE1}\\x{11C41}-\\x{"     \
    "11C45}"                                                                                       \
    "\\x{11C70}-\\x{11C71}\\x{11EF7}-\\x{11EF8}\\x{11F43}-\\x{11F4F}\\x{11FFF}\\x{12FF1}-\\x{"     \
    "12FF2}"                                                                                       \
    "\\x{16D6D}-\\x{16D6F}\\x{16E97}-\\x{16E9A}\\x{16FE2}\\x{1E5FF}\\x{1E95E}-\\x{1E95F}])"        \
    "[\\p{P}$+<=>^`|~\\x{166D}\\x{111C9}]"

static hop_status read_punctuation(const struct hop_component *c, struct hop_pretokenizer *p,
                                   struct hop_error *err)
{
    enum behavior behavior = ISOLATED;
    if (json_object_get(c->json, "behavior"))
        HOP_TRY(read_behavior(c, &behavior, err));
    return add_split(p, PUNCTUATION, behavior, c->path, err);
}

static hop_status read_whitespace(const struct hop_component *c, struct hop_pretokenizer *p,
                                  struct hop_error *err)
{
    HOP_TRY(add_split(p, "\\w+|[^\\w\\s]+", REMOVED, c->path, err));
    p->steps[p->count - 1].invert = true;
    return HOP_OK;
}

static hop_status read_whitespace_split(const struct hop_component *c, struct hop_pretokenizer *p,
                                        struct hop_error *err)
{
    return add_split(p, "\\s", REMOVED, c->path, err);
}

static hop_status add_steps(const struct hop_component *c, void *context, struct hop_error *err)
{
    static const struct {
        const char *type;
        hop_status (*read)(const struct hop_component *, struct hop_pretokenizer *,
                           struct hop_error *);
    } readers[] = {
        {"Split", read_split},
        {"ByteLevel", read_byte_level},
        {"Metaspace", read_metaspace},
        {"Digits", read_digits},
        {"Punctuation", read_punctuation},
        {"Whitespace", read_whitespace},
        {"WhitespaceSplit", read_whitespace_split},
    };
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++)
        if (!strcmp(c->type, readers[i].type))
            return readers[i].read(c, context, err);
    return hop_component_unsupported(c, err);
}

hop_status hop_pretokenizer_read(json_t *root, const char *path, struct hop_pretokenizer *out,
                                 struct hop_error *err)
{
    return hop_component_walk(root, path, "pre_tokenizer", "pretokenizers", add_steps, out, err);
}

void hop_pretokenizer_free(struct hop_pretokenizer *pretokenizer)
{
    for (size_t i = 0; i < pretokenizer->count; i++) {
        hop_pattern_free(pretokenizer->steps[i].pattern);
        free(pretokenizer->steps[i].mark);
    }
    free(pretokenizer->steps);
    *pretokenizer = (struct hop_pretokenizer){0};
}

/* ---- splitting ---- */

/* Where the parts of one piece go. A part is matched text or what lies between matches. */
struct splitter {
    const struct hop_pretokenizer_step *step;
    struct hop_piece piece;
    struct hop_pieces *out;
    size_t floor;     /* out's count before this piece */
    bool any, before; /* whether there was a part, and whether the last one was matched */
    bool empty;       /* whether a part without text was added */
};

static hop_status emit(struct splitter *s, size_t begin, size_t end, struct hop_error *err)
{
    const struct hop_piece part = {.begin = s->piece.begin + begin,
                                   .end = s->piece.begin + end,
                                   .id = -1,
                                   .first = s->piece.first && begin == 0};
    s->empty = s->empty || begin == end;
    return hop_pieces_add(s->out, part, err);
}

/* Parts without text count while neighbours are joined, and only then are dropped. */
static void drop_empty(struct splitter *s)
{
    size_t kept = s->floor;
    for (size_t i = s->floor; i < s->out->count; i++)
        if (s->out->items[i].begin < s->out->items[i].end)
            s->out->items[kept++] = s->out->items[i];
    s->out->count = kept;
}

static bool joins_previous(const struct splitter *s, bool matched)
{
    if (!s->any)
        return false;
    switch (s->step->behavior) {
    case MERGED_WITH_PREVIOUS:
        return matched && !s->before;
    case MERGED_WITH_NEXT:
        return !matched && s->before;
    case CONTIGUOUS:
        return matched == s->before;
    default:
        return false;
    }
}

static hop_status add_part(struct splitter *s, size_t begin, size_t end, bool matched,
                           struct hop_error *err)
{
    matched = matched != s->step->invert;
    const bool joins = joins_previous(s, matched) && s->out->count > s->floor;
    s->any = true;
    s->before = matched;
    if (matched && s->step->behavior == REMOVED)
        return HOP_OK;
    if (!joins)
        return emit(s, begin, end, err);
    s->out->items[s->out->count - 1].end = s->piece.begin + end;
    return HOP_OK;
}

static hop_status split(const void *context, const char *text, struct hop_piece piece,
                        struct hop_pieces *out, struct hop_error *err)
{
    const struct hop_pretokenizer_step *const step = context;
    struct splitter s = {.step = step, .piece = piece, .out = out, .floor = out->count};
    struct hop_matches m = {
        .pattern = step->pattern, .text = text, .length = piece.end - piece.begin};
    size_t done = 0;
    for (;;) {
        bool found;
        HOP_TRY(hop_matches_next(&m, &found, err));
        if (!found)
            break;
        if (done != m.begin)
            HOP_TRY(add_part(&s, done, m.begin, false, err));
        HOP_TRY(add_part(&s, m.begin, m.end, true, err));
        done = m.end;
    }
    if (done != m.length)
        HOP_TRY(add_part(&s, done, m.length, false, err));
    if (s.empty)
        drop_empty(&s);
    return HOP_OK;
}

/* ---- rewriting ---- */

static hop_status prefix_space(const void *step, const char *text, size_t n, bool first,
                               struct hop_string *out, struct hop_error *err)
{
    (void)step;
    (void)first;
    if (n && text[0] != ' ')
        HOP_TRY(hop_string_append(out, " ", 1, err));
    return hop_string_append(out, text, n, err);
}

static hop_status map_bytes(const void *step, const char *text, size_t n, bool first,
                            struct hop_string *out, struct hop_error *err)
{
    (void)step;
    (void)first;
    HOP_TRY(hop_grow(&out->data, &out->capacity, out->length + 2 * n + 1, 1, err));
    char *at = out->data + out->length;
    for (size_t i = 0; i < n; i++) {
        const int32_t codepoint = hop_byte_to_codepoint((unsigned char)text[i]);
        if (codepoint < 0x80) {
            *at++ = (char)codepoint;
        } else {
            *at++ = (char)(0xC0 | codepoint >> 6);
            *at++ = (char)(0x80 | (codepoint & 0x3F));
        }
    }
    *at = '\0';
    out->length = (size_t)(at - out->data);
    return HOP_OK;
}

static hop_status mark_spaces(const void *context, const char *text, size_t n, bool first,
                              struct hop_string *out, struct hop_error *err)
{
    const struct hop_pretokenizer_step *const step = context;
    const size_t mark = strlen(step->mark);
    const bool marked = text[0] == ' ' || (n >= mark && !memcmp(text, step->mark, mark));
    if (!marked && (step->prepend == PREPEND_ALWAYS || (step->prepend == PREPEND_FIRST && first)))
        HOP_TRY(hop_string_append(out, step->mark, mark, err));
    return hop_pattern_replace(step->pattern, step->mark, text, n, out, err);
}

hop_status hop_pretokenizer_apply(const struct hop_pretokenizer *pretokenizer,
                                  struct hop_pieces *pieces, struct hop_pieces *scratch,
                                  struct hop_error *err)
{
    static const hop_rewrite rewrites[] = {
        [PREFIX_SPACE] = prefix_space, [MAP_BYTES] = map_bytes, [MARK_SPACES] = mark_spaces};
    for (size_t i = 0; i < pretokenizer->count; i++) {
        const struct hop_pretokenizer_step *const step = &pretokenizer->steps[i];
        if (step->kind == SPLIT)
            HOP_TRY(hop_pieces_divide(pieces, scratch, split, step, err));
        else
            HOP_TRY(hop_pieces_rewrite(pieces, scratch, rewrites[step->kind], step, err));
    }
    return HOP_OK;
}
