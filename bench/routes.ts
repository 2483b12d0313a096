/**
 * Time from a changed route to the first answer of its new backend through the real Traefik, with
 * 100 and 1,000 projects.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { startApplications } from '@berth/testbed/applications';
import { findTraefik } from '@berth/testbed/config';
import { type Platform, startPlatform } from '@berth/testbed/platform';
import { startInstantAgents } from './instant-agents.ts';
import { summary } from './stats.ts';

const SIZES = [
  { projects: 100, goalMs: 100 },
  { projects: 1000, goalMs: 300 },
];
const CHANGES = 30;
const AT_ONCE = 25;

async function backend(text: string): Promise<{ server: Server; port: number }> {
  const server = createServer((_, response) => void response.end(text));
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
  return { server, port: (server.address() as AddressInfo).port };
}

async function growTo(berth: Platform, have: number, want: number): Promise<void> {
  for (let first = have; first < want; first += AT_ONCE) {
    const some = Array.from({ length: Math.min(AT_ONCE, want - first) }, (_, i) => `p${first + i}`);
    await Promise.all(
      some.map(async (name) => {
        const project = await berth.createProject({
          name,
          git_url: 'https://git.example/x.git',
          domain_prefix: name,
        });
        const done = await berth.settled(await berth.deploy(project), 120_000);
        if (done.status !== 'running')
          throw new Error(`${name} is ${done.status}: ${done.error?.message}`);
      }),
    );
  }
}

export async function benchRoutes(): Promise<string[]> {
  if (findTraefik() === undefined) return ['routes: skipped: no Traefik (set TRAEFIK_BIN)'];
  const dir = await mkdtemp(join(tmpdir(), 'berth-bench-'));
  const [one, two] = [await backend('one'), await backend('two')];
  const others = startApplications((_, response) => response.end('other'));
  const berth = await startPlatform({
    dir,
    proxy: 'traefik',
    registry: { address: '127.0.0.1:1', user: 'x', password: 'x' },
    agents: [],
  });
  const agents = await startInstantAgents(berth.url, berth.agentSecret);
  const lines: string[] = [];
  try {
    let have = 0;
    let port = one.port;
    agents.portOf((project) => (project === 'p0' ? port : others.portOf(project)));
    for (const { projects, goalMs } of SIZES) {
      await growTo(berth, have, projects);
      have = projects;
      const project = (await berth.api.call('listProjects', { query: { limit: 1 } })).items[0];
      if (project?.name !== 'p0')
        throw new Error(`the first project by name is ${project?.name}, not p0`);
      const took: number[] = [];
      for (let change = 0; change < CHANGES; change++) {
        const to = port === one.port ? two : one;
        port = to.port;
        const text = to === one ? 'one' : 'two';
        let from = Number.NaN;
        agents.beforeReport((name) => name === 'p0' && (from = performance.now()));
        const asked = await berth.deploy(project);
        const late = AbortSignal.timeout(60_000);
        while ((await berth.get('p0')).body !== text) await sleep(2, undefined, { signal: late });
        took.push(performance.now() - from);
        await berth.settled(asked);
      }
      const s = summary(took);
      lines.push(
        `routes (${projects} projects, ${CHANGES} changes, from the report of the new port to ` +
          `the backend's first answer through Traefik): p50 ${s.p50.toFixed(0)} ms, p99 ` +
          `${s.p99.toFixed(0)} ms; goal p50 <= ${goalMs} ms: ` +
          (s.p50 <= goalMs ? 'met' : 'MISSED'),
      );
    }
    return lines;
  } finally {
    await agents.stop();
    await berth.stop();
    one.server.close();
    two.server.close();
    await others.stop();
    await rm(dir, { recursive: true, force: true });
  }
}
