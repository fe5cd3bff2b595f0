#!/bin/sh
# Compiler launcher: runs nvcc and keeps, beside <object>, what the build's checks read: what ptxas -v says in
# <object>.ptxas.txt, and in <object>.kept/ the PTX and the machine code of each architecture. Other messages go on to the
# console.
output=
previous=
for argument in "$@"; do
  if [ "$previous" = "-o" ]; then output=$argument; fi
  previous=$argument
done
if [ -z "$output" ]; then exec "$@"; fi
kept=$output.kept
rm -rf "$kept"
mkdir -p "$kept"
"$@" --keep --keep-dir "$kept" 2>"$output.ptxas.txt"
status=$?
find "$kept" -type f ! -name '*.ptx' ! -name '*.cubin' -delete
grep -v -E "^ptxas info|^ +[0-9]+ bytes stack frame" "$output.ptxas.txt" >&2
exit $status
