/* The alphabet of byte-level vocabularies: bytes that print (33-126, 161-172, 174-255 in Latin-1)
 * stand for themselves, the other 68 take U+0100 and up in order: 0-32, 127-160, 173. */
#include "text/tokenizer_internal.h"

int32_t hop_byte_to_codepoint(unsigned char byte)
{
    if (byte <= 32)
        return 0x100 + byte;
    if (byte >= 127 && byte <= 160)
        return 0x100 + 33 + (byte - 127);
    return byte == 173 ? 0x100 + 67 : byte;
}

int hop_codepoint_to_byte(int32_t codepoint)
{
    if (codepoint < 0 || codepoint > 0x100 + 67)
        return -1;
    if (codepoint == 0x100 + 67)
        return 173;
    if (codepoint >= 0x100 + 33)
        return codepoint - (0x100 + 33) + 127;
    if (codepoint >= 0x100)
        return codepoint - 0x100;
    const bool prints = codepoint > 32 && (codepoint < 127 || codepoint > 160) && codepoint != 173;
    return prints ? codepoint : -1;
}
