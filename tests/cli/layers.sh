#!/bin/sh
# An include may only look upward in the list of layers (cmake/HybridopLayers.cmake, CONTRIBUTING.md).
set -eu
cd "$SOURCE/src"
layers=$(sed -n 's/^hybridop_layer(\([a-z]*\).*/\1/p' "$SOURCE/cmake/HybridopLayers.cmake")
[ -n "$layers" ] || { echo "no layers found"; exit 1; }
failed=0
below="$layers cli"
for layer in $layers; do
    below=$(echo "$below" | tr ' ' '\n' | grep -v "^$layer\$" | tr '\n' ' ')
    for lower in $below; do
        if grep -rn "#include \"$lower/" "$layer" 2>/dev/null; then
            echo "^ $layer must not include $lower"
            failed=1
        fi
    done
done
exit $failed
