/**
 * Who asks the API in bench/data-api.ts: a process of its own, so that nothing else that the benchmark does makes it wait, and one
 * that leaves as little garbage as can be, since its own collector's pauses would count as the server's: beside a busy core they
 * took 10 ms each. Told to begin and to end by its parent; answers with the milliseconds of each request.
 */
import { Agent, get } from 'node:http';
import { setTimeout } from 'node:timers/promises';

export type Asked = { url: string; token: string; everyMs: number };
/** More than a phase has. */
const MOST = 100_000;

const { url, token, everyMs } = JSON.parse(process.argv[2] ?? '') as Asked;
const options = { agent: new Agent({ keepAlive: true }), headers: { authorization: `Bearer ${token}` } };
const took = new Float64Array(MOST);
let [count, open, asking] = [0, 0, false];
let problem: string | null = null;

function ask(): void {
  const at = performance.now();
  const failed = (why: string): void => {
    problem ??= why;
    open -= 1;
  };
  open += 1;
  get(url, options, (response) => {
    response.resume();
    response.once('end', () => {
      if (response.statusCode !== 200) return failed(`answered ${response.statusCode}`);
      took[count++] = performance.now() - at;
      open -= 1;
    });
  }).once('error', (error) => failed(error.message));
}

/** At a steady pace, whatever the answers before took. */
async function askOn(): Promise<void> {
  const began = performance.now();
  for (let i = 1; asking && count + open < MOST; i++) {
    ask();
    await setTimeout(Math.max(0, began + i * everyMs - performance.now()));
  }
  while (open > 0) await setTimeout(1);
  process.send?.(problem ?? [...took.subarray(0, count)]);
}

process.on('message', (message: 'begin' | 'end') => {
  asking = message === 'begin';
  if (!asking) return;
  [count, problem] = [0, null];
  void askOn();
});
process.on('disconnect', () => process.exit());
