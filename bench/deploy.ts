/**
 * Time from POST of a deployment (its commit was pushed before) to its first answer through the
 * proxy, against the same steps in a shell: git clone --depth=1, buildx build --push, docker pull,
 * docker run -d -p, first answer. In turns, in one run.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { run } from '@berth/testbed/process';
import { pageApp, startWorld, versionOf, whyNot, type World } from '../test/e2e/world.ts';
import { summary } from './stats.ts';

const ROUNDS = 9;
const GOAL_EXTRA_MS = 500;

async function until(answered: () => Promise<boolean>): Promise<void> {
  const late = AbortSignal.timeout(120_000);
  // A refused connection means "not yet". The deadline ends the wait.
  while (!(await answered().catch(() => false))) await sleep(5, undefined, { signal: late });
}

async function inShell({ engine, registry }: World, url: string, version: number): Promise<number> {
  const dir = await mkdtemp(join(tmpdir(), 'berth-bench-'));
  const name = `shell-${version}`;
  const image = `${registry.address}/shell:${version}`;
  const from = performance.now();
  try {
    await run(['git', 'clone', '-q', '--depth=1', '--branch', 'main', url, dir]);
    await engine.docker(['buildx', 'build', '--push', '-q', '-t', image, dir]);
    await engine.docker(['pull', '-q', image]);
    await engine.docker(['run', '-d', '--name', name, '-p', '0:8080', image]);
    const { stdout } = await engine.docker(['port', name, '8080']);
    const port = stdout.split('\n')[0]?.split(':').at(-1);
    await until(
      async () =>
        versionOf(await (await fetch(`http://${engine.hostIp}:${port}/`)).text()) === version,
    );
    return performance.now() - from;
  } finally {
    await engine.docker(['rm', '-f', name], { mayFail: true });
    await rm(dir, { recursive: true, force: true });
  }
}

async function byBerth(
  { berth }: World,
  project: { id: string },
  version: number,
): Promise<number> {
  const from = performance.now();
  const asked = await berth.deploy(project);
  await until(async () => versionOf((await berth.get('bench')).body) === version);
  const took = performance.now() - from;
  // The next steps (retiring the old container) must not run during the next round.
  await berth.settled(asked);
  return took;
}

/** Rounds of a push by hook against a request by hand. */
const HOOK_ROUNDS = 5;

type Hooked = { id: string; address: string; secret: string };

/**
 * Reports a push as a forge does, and waits for its first answer. The check of the branch is a part
 * of it.
 */
async function byHook({ berth }: World, hook: Hooked, version: number): Promise<number> {
  const from = performance.now();
  const answer = await fetch(hook.address, {
    method: 'POST',
    headers: { authorization: `Bearer ${hook.secret}` },
  });
  if (answer.status !== 202) throw new Error(`the hook answered ${answer.status}`);
  await until(async () => versionOf((await berth.get('bench')).body) === version);
  const took = performance.now() - from;
  const { items } = await berth.api.call('projectDeployments', {
    params: { id: hook.id },
    query: { limit: 1 },
  });
  await berth.settled({ id: items[0]?.id ?? '' });
  return took;
}

async function hookAgainstHand(
  world: World,
  project: { id: string },
  first: number,
): Promise<string> {
  const { berth, git } = world;
  const { url, secret } = await berth.api.call('putHook', {
    params: { id: project.id },
    body: { forge: 'generic' },
  });
  const hook = {
    id: project.id,
    address: `${berth.url}${new URL(url).pathname}`,
    secret: secret ?? '',
  };
  const [hooked, handed]: [number[], number[]] = [[], []];
  let version = first;
  for (let round = 0; round < HOOK_ROUNDS; round++)
    for (const way of round % 2 === 0 ? (['hook', 'hand'] as const) : (['hand', 'hook'] as const)) {
      version += 1;
      await git.commit('bench', pageApp(version), `version ${version}`);
      if (way === 'hook') hooked.push(await byHook(world, hook, version));
      else handed.push(await byBerth(world, project, version));
    }
  const [a, b] = [summary(hooked), summary(handed)];
  return (
    `push: by hook p50 ${a.p50.toFixed(0)} ms (${a.min.toFixed(0)}-${a.max.toFixed(0)}), by hand ` +
    `p50 ${b.p50.toFixed(0)} ms (${b.min.toFixed(0)}-${b.max.toFixed(0)}); ratio p50 ` +
    (a.p50 / b.p50).toFixed(2)
  );
}

export async function benchDeploy(): Promise<string[]> {
  const proxy = (await whyNot('traefik')) === undefined ? 'traefik' : 'built-in';
  const reason = await whyNot(proxy);
  if (reason !== undefined) return [`deploy: skipped: ${reason}`];
  const world = await startWorld({ proxy });
  try {
    const { berth, engine, git, registry } = world;
    await engine.docker(
      ['login', '--username', registry.user ?? '', '--password-stdin', registry.address],
      {
        input: registry.password ?? '',
      },
    );
    const { url } = await git.createRepo('bench', pageApp(0));
    const project = await berth.createProject({
      name: 'bench',
      git_url: url,
      domain_prefix: 'bench',
      drain_seconds: 0,
      stop_grace_seconds: 1,
    });
    const shell: number[] = [];
    const ours: number[] = [];
    for (let round = 0; round <= ROUNDS; round++) {
      const version = round + 1;
      await git.commit('bench', pageApp(version), `version ${version}`);
      // The order alternates, so that neither always profits from the other's warm cache.
      const order = round % 2 === 0 ? ['shell', 'ours'] : ['ours', 'shell'];
      const took: Record<string, number> = {};
      for (const who of order)
        took[who] =
          who === 'shell'
            ? await inShell(world, url, version)
            : await byBerth(world, project, version);
      // The first round only warms up both.
      if (round === 0) continue;
      shell.push(took['shell'] ?? Number.NaN);
      ours.push(took['ours'] ?? Number.NaN);
    }
    const [a, b] = [summary(ours), summary(shell)];
    const ratio = summary(ours.map((ms, i) => ms / (shell[i] ?? Number.NaN)));
    const met = a.p50 <= b.p50 + GOAL_EXTRA_MS;
    const pushed = await hookAgainstHand(world, project, ROUNDS + 1);
    return [
      `deploy (through ${proxy}, ${ROUNDS} rounds in turns): Berth p50 ${a.p50.toFixed(0)} ms ` +
        `(${a.min.toFixed(0)}-${a.max.toFixed(0)}), shell p50 ${b.p50.toFixed(0)} ms ` +
        `(${b.min.toFixed(0)}-${b.max.toFixed(0)})`,
      `deploy: ratio p50 ${ratio.p50.toFixed(2)} ` +
        `(${ratio.min.toFixed(2)}-${ratio.max.toFixed(2)}); goal <= 1.0 x + ` +
        `${GOAL_EXTRA_MS / 1000} s: ${met ? 'met' : 'MISSED'} ` +
        `(${((a.p50 - b.p50) / 1000).toFixed(2)} s more than the shell)`,
      pushed,
    ];
  } finally {
    await world.stop();
  }
}
