/* A data file. The first byte names the task ('0' jsonl, '1' ag_news, '2' multirc, '3' squad), the
 * rest is the file. */
#include "data/dataset.h"
#include "fuzz.h"

enum { MAX_LENGTH = 48 };

static struct hop_chat *chat_of_model(void)
{
    static struct hop_chat *chat; /* reachable until the end */
    struct hop_error err = {0};
    if (!chat)
        hop_fuzz_ok(hop_chat_load(HOP_SOURCE_DIR "/models/wordnet-3m", HOP_CHAT_CHATML,
                                  hop_fuzz_tokenizer(), &chat, &err),
                    &err);
    return chat;
}

static void check_example(const struct hop_example *e, int32_t vocabulary)
{
    HOP_FUZZ_EXPECT(e->length >= 1 && e->length <= MAX_LENGTH && e->whole >= e->length);
    HOP_FUZZ_EXPECT(e->prompt_length >= 0 && e->prompt_length <= e->length);
    for (int32_t i = 0; i < e->length; i++) {
        HOP_FUZZ_EXPECT(e->ids[i] >= 0 && e->ids[i] < vocabulary);
        HOP_FUZZ_EXPECT(e->labels[i] == HOP_LABEL_IGNORED ||
                        (e->labels[i] >= 0 && e->labels[i] < vocabulary));
    }
}

static void check_dataset(const struct hop_dataset *d, int32_t vocabulary)
{
    HOP_FUZZ_EXPECT(d->count > 0);
    for (size_t i = 0; i < d->count; i++) {
        const struct hop_example *const e = &d->examples[i];
        check_example(e, vocabulary);
        HOP_FUZZ_EXPECT(e->answer >= -1 && e->answer < (int32_t)d->label_count);
        HOP_FUZZ_EXPECT(e->group >= -1 && e->group < (int32_t)d->group_count);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size || data[0] < '0' || data[0] >= '0' + HOP_TASK_COUNT)
        return -1;
    struct hop_tokenizer *const tokenizer = hop_fuzz_tokenizer();
    const struct hop_dataset_options options = {.task = (enum hop_data_task)(data[0] - '0'),
                                                .max_length = MAX_LENGTH,
                                                .vocabulary = hop_tokenizer_vocabulary(tokenizer),
                                                .eos = 1,
                                                .chat = chat_of_model()};
    struct hop_dataset *dataset = NULL;
    struct hop_error err = {0};
    const char *const path = hop_fuzz_write("rows", data + 1, size - 1);
    if (!hop_fuzz_read(hop_dataset_load(path, tokenizer, &options, &dataset, &err), &err))
        return 0;
    check_dataset(dataset, options.vocabulary);
    hop_dataset_free(dataset);
    return 0;
}
