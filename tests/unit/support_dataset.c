#include "support_dataset.h"

#include "support_files.h"

#include "io/file.h"

static struct hop_error err;

struct hop_tokenizer *hop_test_tokenizer(void)
{
    struct hop_tokenizer *out = NULL;
    const char *directory = HOP_SOURCE_DIR "/models/wordnet-3m";
    if (!hop_file_exists(HOP_SOURCE_DIR "/models/wordnet-3m/tokenizer.json"))
        directory = hop_test_data("models/stories260K");
    if (directory)
        ASSERT_OK(hop_tokenizer_load(directory, &out, &err));
    return out;
}

void hop_test_pair(struct hop_tokenizer *tokenizer, const struct hop_example *example,
                   const char *prompt, const char *completion)
{
    struct hop_ids ids = {0};
    ASSERT_OK(hop_tokenizer_encode(tokenizer, prompt, strlen(prompt), true, &ids, &err));
    const int32_t begin = (int32_t)ids.count;
    ASSERT_OK(hop_tokenizer_encode(tokenizer, completion, strlen(completion), false, &ids, &err));
    ASSERT_OK(hop_ids_append(&ids, HOP_TEST_EOS, &err));
    assert_int_equal(example->length, ids.count);
    assert_int_equal(example->prompt_length, begin);
    for (int32_t i = 0; i < example->length; i++) {
        assert_int_equal(example->ids[i], ids.data[i]);
        assert_int_equal(example->labels[i], i < begin ? HOP_LABEL_IGNORED : ids.data[i]);
    }
    hop_ids_free(&ids);
}
