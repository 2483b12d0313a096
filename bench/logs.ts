/**
 * Measures the cost of a burst of runtime logs for the real control plane process: 5,000 lines a
 * second, in batches as an agent sends them, to viewers of the log. CPU time beside the same time
 * without lines, and how much the burst slows GET /api/projects for others.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, get } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { createClient } from '@berth/wire/client';
import type { LogCursor } from '@berth/wire/log-cursor';
import { LOGS_CAPABILITY } from '@berth/wire/runtime';
import { startPlatform } from '@berth/testbed/platform';
import { waitFor } from '@berth/testbed/wait';
import type { RequesterOptions } from './api-requester.ts';
import { during } from './data-api.ts';
import { startInstantAgents } from './instant-agents.ts';
import { summary } from './stats.ts';
import { cpuSecondsOfTree } from './verify-load.ts';

const LINES_PER_SECOND = 5_000;
const BATCH = 1_000;
const RUN = 'c1';
const TEXT =
  'GET /items/4711?page=2 200 12 ms "Mozilla/5.0 (X11; Linux x86_64)" request=0123456789abcdef'.padEnd(
    100,
    '.',
  );
/** With both numbers of viewers, the whole takes less than two minutes. */
const [PHASE_MS, ROUNDS, EVERY_MS] = [4_000, 4, 10];
const GOAL_CORE = 0.1;
const GOAL_RATIO = 1.5;

type Phase = { cores: number; took: number[] };
type Round = { rest: Phase; burst: Phase };

export async function benchLogs(): Promise<string[]> {
  const dir = await mkdtemp(join(tmpdir(), 'berth-bench-logs-'));
  const backend = createServer((_, response) => response.end('ok'));
  await new Promise<void>((resolve) => void backend.listen(0, '127.0.0.1', resolve));
  const berth = await startPlatform({
    dir,
    proxy: 'built-in',
    registry: { address: '127.0.0.1:1', user: 'x', password: 'x' },
    agents: [],
  });
  const end = new AbortController();
  let requester: ChildProcess | undefined;
  try {
    const agents = await startInstantAgents(berth.url, berth.agentSecret);
    agents.portOf(() => (backend.address() as AddressInfo).port);
    const project = await berth.createProject({
      name: 'chatty',
      git_url: 'https://git.example/x.git',
      domain_prefix: 'chatty',
    });
    const { id: deployment, status } = await berth.settled(await berth.deploy(project), 120_000);
    if (status !== 'running') throw new Error(`the deployment is ${status}`);
    await agents.stop();

    const node = createClient({
      baseUrl: berth.url,
      headers: () => ({ 'x-agent-secret': berth.agentSecret }),
    });
    const register = () =>
      node.call('agentRegister', {
        body: {
          hostname: 'instant-deploy',
          role: 'deploy',
          host_ip: '127.0.0.1',
          max_storage: 1e12,
          agent_version: 'instant',
          capabilities: [LOGS_CAPABILITY],
        },
      });
    const { id: node_id } = await register();
    let next = 0;
    const cursorOf = (at: string): LogCursor => ({ run: RUN, at, ordinal: 0 });
    let newest = cursorOf(`${new Date().toISOString().slice(0, 19)}.000000000Z`);
    /**
     * Sends lines as the reader of an agent does, and waits as long as the control plane asks for.
     */
    async function send(count: number): Promise<void> {
      const lines = Array.from({ length: count }, (_, i) => ({
        at: `${new Date().toISOString().slice(0, 19)}.${String(next + i).padStart(9, '0')}Z`,
        stream: 'stdout' as const,
        text: TEXT,
      }));
      const first = next;
      next += count;
      const answer = await node.call('agentLogBatch', {
        params: { key: `f-${deployment}` },
        body: { node_id, epoch: 'e', first, run: RUN, after: newest, lines, now: Date.now() },
      });
      newest = cursorOf(lines.at(-1)?.at ?? newest.at);
      if (!answer.wanted || answer.wait_ms > 0)
        throw new Error(`the control plane answered ${JSON.stringify(answer)}`);
    }
    /** The lines before a viewer came: none. */
    async function answerReads(): Promise<void> {
      const { items } = await node.call('agentLogWants', { query: { node_id } });
      for (const { key, mode } of items)
        if (mode === 'read')
          await node.call('agentLogBatch', {
            params: { key },
            body: {
              node_id,
              epoch: key,
              first: 0,
              run: RUN,
              after: null,
              last: newest,
              lines: [],
              now: Date.now(),
              end: true,
            },
          });
    }
    const { token } = await createClient({ baseUrl: berth.url }).call('login', {
      body: berth.admin,
    });
    let [opened, received, gaps] = [0, 0, 0];
    const viewers = (count: number, as: string): void => {
      for (let i = 0; i < count; i++) {
        const headers = { authorization: `Bearer ${as}`, accept: 'text/event-stream' };
        get(
          `${berth.url}/api/projects/${project.id}/logs?tail=0`,
          { headers, signal: end.signal },
          (response) => {
            opened += 1;
            response.setEncoding('latin1');
            let rest = '';
            response.on('data', (part: string) => {
              const events = (rest + part).split('\n\n');
              rest = events.pop() ?? '';
              for (const event of events)
                if (event.includes('event: line')) received += 1;
                else if (event.includes('event: lost')) gaps += 1;
            });
            response.on('error', () => undefined);
          },
        ).on('error', () => undefined);
      }
    };
    const requests: RequesterOptions = {
      url: `${berth.url}/api/projects`,
      token,
      everyMs: EVERY_MS,
    };
    requester = fork(join(import.meta.dirname, 'api-requester.ts'), [JSON.stringify(requests)]);
    const api = requester;
    const { pid } = berth.controlPlane.process();
    async function phase(work: () => Promise<void>): Promise<Phase> {
      let cores = 0;
      const took = await during(api, async () => {
        const [from, cpu] = [performance.now(), cpuSecondsOfTree(pid)];
        await work();
        await sleep(Math.max(0, from + PHASE_MS - performance.now()));
        cores = (cpuSecondsOfTree(pid) - cpu) / ((performance.now() - from) / 1_000);
      });
      return { cores, took };
    }
    async function burst(): Promise<void> {
      const from = performance.now();
      for (let sent = 0; sent < (LINES_PER_SECOND * PHASE_MS) / 1_000; sent += BATCH) {
        await sleep(Math.max(0, from + (sent / LINES_PER_SECOND) * 1_000 - performance.now()));
        await send(BATCH);
      }
    }
    const lines: string[] = [];
    let open = 0;
    for (const count of [1, 8]) {
      viewers(count - open, token);
      open = count;
      await waitFor('the viewers follow', async () => opened === count);
      for (const until = performance.now() + 4_000; performance.now() < until; await sleep(100))
        await answerReads();
      // The comparison with the first read ends after 5 s.
      await sleep(3_000);
      const rounds: Round[] = [];
      for (let i = 0; i <= ROUNDS; i++) {
        await register();
        const before = received;
        const sent = next;
        const round = { rest: await phase(async () => undefined), burst: await phase(burst) };
        await waitFor(
          'every viewer has every line',
          async () => gaps > 0 || received - before === (next - sent) * count,
        );
        // The first round is not counted, because the compiler has not optimized the measured code
        // yet.
        if (i > 0) rounds.push(round);
      }
      lines.push(...report(count, rounds, gaps));
      gaps = 0;
    }
    return lines;
  } finally {
    end.abort();
    requester?.kill();
    await berth.stop();
    backend.close();
    await rm(dir, { recursive: true, force: true });
  }
}

function report(viewers: number, rounds: readonly Round[], gaps: number): string[] {
  const cost = summary(rounds.map(({ rest, burst }) => burst.cores - rest.cores));
  const [rest, burst] = [
    summary(rounds.flatMap((r) => r.rest.took)),
    summary(rounds.flatMap((r) => r.burst.took)),
  ];
  const [p50, p99] = [burst.p50 / rest.p50, burst.p99 / rest.p99];
  const judge = (met: boolean): string => (met ? 'met' : 'MISSED');
  const who = `${viewers} ${viewers === 1 ? 'viewer' : 'viewers'}`;
  const goal =
    viewers === 1
      ? `; goal <= ${GOAL_CORE * 100} %: ${judge(cost.p50 <= GOAL_CORE)}`
      : ' (no goal)';
  const ratioGoal =
    viewers === 1 ? `; goal p50 <= ${GOAL_RATIO}: ${judge(p50 <= GOAL_RATIO)}` : ' (no goal)';
  return [
    `logs: ${who}: ${LINES_PER_SECOND} lines/s of 100 characters cost the control plane ` +
      `${(cost.p50 * 100).toFixed(1)} % of a core more than rest (median of ${rounds.length} ` +
      `rounds of ${PHASE_MS / 1_000} s; ${(cost.min * 100).toFixed(1)} to ` +
      `${(cost.max * 100).toFixed(1)}), ${gaps} gaps${goal}`,
    `logs: ${who}: GET /api/projects for others: ratio of burst to rest p50 ${p50.toFixed(2)}, ` +
      `p99 ${p99.toFixed(2)} (burst p50 ${burst.p50.toFixed(2)} ms, p99 ${burst.p99.toFixed(2)} ` +
      `ms; rest p50 ${rest.p50.toFixed(2)} ms, p99 ${rest.p99.toFixed(2)} ms)${ratioGoal}`,
  ];
}
