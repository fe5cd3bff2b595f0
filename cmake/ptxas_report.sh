#!/bin/sh
# Compiler launcher: runs nvcc and keeps what ptxas -v says in <object>.ptxas.txt; anything else goes on to the console.
output=
previous=
for argument in "$@"; do
  if [ "$previous" = "-o" ]; then output=$argument; fi
  previous=$argument
done
if [ -z "$output" ]; then exec "$@"; fi
"$@" 2>"$output.ptxas.txt"
status=$?
grep -v -E "^ptxas info|^ +[0-9]+ bytes stack frame" "$output.ptxas.txt" >&2
exit $status
