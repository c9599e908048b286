/* A safetensors file: whatever is handed out lies inside the file and has the bytes its shape says.
 */
#include "fuzz.h"
#include "io/safetensors.h"

static void check_tensor(const struct hop_safetensors *set, const struct hop_tensor *t, size_t size)
{
    static volatile unsigned char sum;
    const unsigned char *const bytes = t->data;
    HOP_FUZZ_EXPECT(t->rank >= 0 && t->rank <= HOP_TENSOR_MAX_RANK);
    HOP_FUZZ_EXPECT(t->offset >= 8 && t->offset <= size && t->bytes <= size - t->offset);
    HOP_FUZZ_EXPECT(hop_safetensors_find(set, t->name) == t);
    if (t->dtype != HOP_DTYPE_OTHER) {
        size_t elements = 1;
        for (int i = 0; i < t->rank; i++)
            elements *= (size_t)t->shape[i];
        HOP_FUZZ_EXPECT(elements * hop_dtype_size(t->dtype) == t->bytes);
    }
    for (size_t i = 0; i < t->bytes; i++)
        sum = (unsigned char)(sum + bytes[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hop_safetensors *set;
    struct hop_error err = {0};
    const char *const path = hop_fuzz_write("model.safetensors", data, size);
    if (!hop_fuzz_read(hop_safetensors_open(path, &set, &err), &err))
        return 0;
    for (size_t i = 0; i < hop_safetensors_count(set); i++)
        check_tensor(set, hop_safetensors_at(set, i), size);
    hop_safetensors_close(set);
    return 0;
}
