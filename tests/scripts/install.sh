#!/bin/sh
# What `cmake --install` and cpack write: a program that runs, its man page and completions.
# Usage: install.sh CMAKE BUILD VERSION
set -eu
cmake=$1 build=$2 version=$3
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
trap 'exit 1' HUP INT TERM

check() {
    for file in bin/weft share/man/man1/weft.1 share/bash-completion/completions/weft share/zsh/site-functions/_weft \
        share/doc/weft/CHANGELOG.md share/doc/weft/docs/getting-started.md share/doc/weft/docs/pictures/1f1b.svg \
        share/weft/recipes/demo.json; do
        [ -s "$1/$file" ] || { echo "missing: $1/$file" && exit 1; }
    done
    [ "$("$1/bin/weft" version)" = "weft $version" ] || { echo "$1/bin/weft has another version" && exit 1; }
}

[ -e "$build/share/weft.1" ] || { echo "skipped: the man page is not built" && exit 77; }
"$cmake" --install "$build" --prefix "$work/prefix" >/dev/null
check "$work/prefix"
command -v dpkg-deb >/dev/null 2>&1 || exit 0
"$(dirname "$cmake")/cpack" --config "$build/CPackConfig.cmake" -B "$work/packages" >"$work/log" 2>&1 || {
    cat "$work/log"
    exit 1
}
package=$(echo "$work"/packages/weft_"$version"*.deb)
dpkg-deb -x "$package" "$work/package"
check "$work/package/usr"
dpkg-deb -f "$package" Depends | grep -q openmpi-bin
# The changelog is about this version.
grep -q "^## $version" "$work/prefix/share/doc/weft/CHANGELOG.md"
