/**
 * Sends the API requests of bench/data-api.ts from a separate process, so that nothing else in the
 * benchmark delays it. It creates as little garbage as possible: pauses of its own garbage
 * collector would count as the server's (10 ms each beside a busy core). The parent tells it to
 * begin and to end; it answers with the milliseconds of each request.
 */
import { Agent, get } from 'node:http';
import { setTimeout } from 'node:timers/promises';

export type RequesterOptions = { url: string; token: string; everyMs: number };
/** Upper bound of requests in a phase. */
const MOST = 100_000;

const { url, token, everyMs } = JSON.parse(process.argv[2] ?? '') as RequesterOptions;
const options = {
  agent: new Agent({ keepAlive: true }),
  headers: { authorization: `Bearer ${token}` },
};
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

/** Sends requests at a steady rate, whatever the earlier answers took. */
async function sendRequests(): Promise<void> {
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
  void sendRequests();
});
process.on('disconnect', () => process.exit());
