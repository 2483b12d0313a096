/** One line of the set-up's own. Stderr: `--json` and other programs' data have stdout for themselves. */
export function say(line) {
  process.stderr.write(`setup: ${line}\n`);
}

/** Says what is done and why, does it, and says how long it took. */
export async function step(what, work) {
  const started = Date.now();
  say(`${what} …`);
  const result = await work();
  say(`  done in ${((Date.now() - started) / 1000).toFixed(1)} s`);
  return result;
}
