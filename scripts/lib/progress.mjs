/** Prints one line of the set-up to stderr, because stdout is for data. */
export function printLine(line) {
  process.stderr.write(`setup: ${line}\n`);
}

/** Prints the step and its reason, runs it, and prints how long it took. */
export async function step(what, work) {
  const started = Date.now();
  printLine(`${what} …`);
  const result = await work();
  printLine(`  done in ${((Date.now() - started) / 1000).toFixed(1)} s`);
  return result;
}
