/** Prints one line of the set-up to stderr, because stdout is for data. */
export function say(line) {
  process.stderr.write(`setup: ${line}\n`);
}

/** Prints the step and its reason, runs it, and prints how long it took. */
export async function step(what, work) {
  const started = Date.now();
  say(`${what} …`);
  const result = await work();
  say(`  done in ${((Date.now() - started) / 1000).toFixed(1)} s`);
  return result;
}
