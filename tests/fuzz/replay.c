/* Reads every file of the folders named on the command line with one target, where no fuzzer is
 * installed. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "fuzz.h"
#include "io/file.h"

/* A copy of exactly its size, so that AddressSanitizer sees a read behind the end. */
static bool replay_file(const char *path)
{
    struct hop_error err = {0};
    struct hop_map map = {0};
    if (hop_map_open(path, &map, &err) != HOP_OK) {
        fprintf(stderr, "%s\n", err.message);
        return false;
    }
    uint8_t *const copy = malloc(map.size ? map.size : 1);
    if (!copy)
        abort();
    for (size_t i = 0; i < map.size; i++)
        copy[i] = map.data[i];
    fprintf(stderr, "%s\n", path); /* the last one named is the one that crashed */
    LLVMFuzzerTestOneInput(copy, map.size);
    free(copy);
    hop_map_close(&map);
    return true;
}

static int replay_folder(const char *folder)
{
    struct dirent **entries;
    const int count = scandir(folder, &entries, NULL, alphasort);
    int replayed = 0;
    if (count < 0) {
        perror(folder);
        return 0;
    }
    for (int i = 0; i < count; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        replayed += entries[i]->d_name[0] != '.' && replay_file(path);
        free(entries[i]);
    }
    free(entries);
    return replayed;
}

int main(int argc, char **argv)
{
    int replayed = 0;
    for (int i = 1; i < argc; i++)
        replayed += replay_folder(argv[i]);
    printf("%d inputs\n", replayed);
    return replayed > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
