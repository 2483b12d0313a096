/**
 * Load for bench/verify.ts, from a separate process so that it costs the server nothing: `wrk`
 * where it is installed, otherwise this file as a program with plain sockets. Each connection waits
 * for the answers before it sends again, one request or several.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { findProgram } from '@berth/testbed/config';
import { run } from '@berth/testbed/process';
import { childrenOf } from '@berth/testbed/process-tree';
import { summary } from './stats.ts';

export type LoadResult = { by: string; perSecond: number; perCpuSecond: number; p99Ms: number };
export type LoadOptions = {
  dir: string;
  requestsFile: string;
  port: number;
  connections: number;
  seconds: number;
  /**
   * Requests that a connection sends at once (RFC 9112 section 9.3.2). More lower the load
   * generator's cost, not the server's.
   */
  pipelined: number;
  cpuSeconds: () => number;
};
/** `failed`: number and kind of failures; empty when there were none. */
type Counted = { requests: number; seconds: number; p99Ms: number; failed: string };

/**
 * CPU seconds of a process and its children, by the scheduler's nanoseconds of each thread (Linux).
 */
export function cpuSecondsOfTree(pid: number): number {
  const nanoseconds = [pid, ...childrenOf(pid)].flatMap((p) =>
    readdirSync(`/proc/${p}/task`).map((t) =>
      Number(readFileSync(`/proc/${p}/task/${t}/schedstat`, 'utf8').split(' ')[0]),
    ),
  );
  return nanoseconds.reduce((sum, n) => sum + n, 0) / 1e9;
}

export async function runLoad(options: LoadOptions): Promise<LoadResult> {
  const wrk = findProgram('wrk');
  const before = options.cpuSeconds();
  const counted = wrk === undefined ? await bySockets(options) : await byWrk(wrk, options);
  const cpu = options.cpuSeconds() - before;
  if (counted.failed !== '')
    throw new Error(`${counted.requests} requests, not all answered with 200:${counted.failed}`);
  return {
    by: wrk === undefined ? 'plain sockets' : 'wrk',
    perSecond: counted.requests / counted.seconds,
    perCpuSecond: counted.requests / cpu,
    p99Ms: counted.p99Ms,
  };
}

const LUA = `
local requests, n, pipelined = {}, 0, 1
function init(args)
  pipelined = tonumber(args[2])
  local file = io.open(args[1], "rb")
  for request in string.gmatch(file:read("*a"), "[^%z]+") do table.insert(requests, request) end
  file:close()
end
function request()
  if pipelined == 1 then return take() end
  local some = {}
  for i = 1, pipelined do some[i] = take() end
  return table.concat(some)
end
function take()
  n = n % #requests + 1
  return requests[n]
end
function done(summary, latency)
  local e = summary.errors
  local failed = ""
  for _, kind in ipairs({ "connect", "read", "write", "status", "timeout" }) do
    if e[kind] > 0 then failed = string.format("%s %d %s", failed, e[kind], kind) end
  end
  io.write(string.format('\\n{"requests":%d,"seconds":%f,"p99Ms":%f,"failed":"%s"}\\n', summary.requests, summary.duration / 1e6, latency:percentile(99) / 1e3, failed))
end
`;

async function byWrk(
  wrk: string,
  { dir, requestsFile, port, connections, seconds, pipelined }: LoadOptions,
): Promise<Counted> {
  // Two load generators may run at once, so each has its own script file.
  const script = join(dir, `load-${port}.lua`);
  await writeFile(script, LUA);
  const { stdout } = await run([
    wrk,
    '-t1',
    `-c${connections}`,
    `-d${seconds}s`,
    '-s',
    script,
    `http://127.0.0.1:${port}`,
    '--',
    requestsFile,
    String(pipelined),
  ]);
  return JSON.parse(stdout.trimEnd().split('\n').at(-1) ?? '') as Counted;
}

async function bySockets({
  requestsFile,
  port,
  connections,
  seconds,
  pipelined,
}: LoadOptions): Promise<Counted> {
  const numbers = [port, connections, seconds, pipelined].map(String);
  const { stdout } = await run([process.execPath, import.meta.filename, requestsFile, ...numbers]);
  return JSON.parse(stdout) as Counted;
}

async function generate(
  requestsFile: string,
  port: number,
  connections: number,
  seconds: number,
  pipelined: number,
): Promise<Counted> {
  const requests = (await readFile(requestsFile, 'latin1'))
    .split('\0')
    .map((text) => Buffer.from(text, 'latin1'));
  const took: number[] = [];
  let next = 0;
  let failed = 0;
  const started = performance.now();
  const end = started + seconds * 1000;
  const one = (): Promise<void> =>
    new Promise((resolve, reject) => {
      let at = 0;
      let rest = '';
      const socket = connect({ port, host: '127.0.0.1', noDelay: true }, () => send());
      const send = (): void => {
        at = performance.now();
        socket.write(
          Buffer.concat(
            Array.from(
              { length: pipelined },
              () => requests[next++ % requests.length] ?? Buffer.alloc(0),
            ),
          ),
        );
      };
      socket.setEncoding('latin1');
      socket.on('error', reject);
      socket.on('data', (chunk: string) => {
        rest += chunk;
        // Every answer has an empty body.
        const answers = rest.split('\r\n\r\n');
        if (answers.length <= pipelined) return;
        failed += answers
          .slice(0, pipelined)
          .filter((answer) => !answer.startsWith('HTTP/1.1 200')).length;
        rest = '';
        const now = performance.now();
        for (let i = 0; i < pipelined; i++) took.push(now - at);
        if (now < end) return send();
        socket.destroy();
        resolve();
      });
    });
  await Promise.all(Array.from({ length: connections }, one));
  return {
    requests: took.length,
    seconds: (performance.now() - started) / 1000,
    p99Ms: summary(took).p99,
    failed: failed === 0 ? '' : ` ${failed} status`,
  };
}

if (import.meta.main) {
  const [file = '', ...numbers] = process.argv.slice(2);
  const [port = 0, connections = 0, seconds = 0, pipelined = 1] = numbers.map(Number);
  process.stdout.write(JSON.stringify(await generate(file, port, connections, seconds, pipelined)));
}
