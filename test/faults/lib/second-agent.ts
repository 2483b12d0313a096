/** Starts an agent process beside or instead of one of the platform's, with the same settings. */
import { cp, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { findProgram, repositoryRoot } from '@berth/testbed/config';
import { freePort } from '@berth/testbed/ports';
import { type Argv, type RunningProcess, startProcess, untilReady } from '@berth/testbed/process';
import type { Stage } from './stage.ts';

const SETTINGS =
  /^(NODE_|CONTROL_PLANE_URL|AGENT_SECRET|HOST_IP|PUBLISH_IP|DOCKER_|SVC_ROOT|STATE_DIR|MAX_|PULL_|PATH=)/;

const BERTH_AGENT: Argv = [process.execPath, join(repositoryRoot, 'bin', 'berth'), 'agent'];

async function settingsOf(pid: number): Promise<Record<string, string>> {
  const lines = (await readFile(`/proc/${pid}/environ`, 'utf8'))
    .split('\0')
    .filter((line) => SETTINGS.test(line));
  return Object.fromEntries(
    lines.map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]),
  );
}

async function startAgent(
  stage: Stage,
  as: string,
  name: string,
  prefix: readonly string[],
): Promise<RunningProcess> {
  const port = await freePort();
  const settings = await settingsOf(stage.agent(as).process().pid);
  const stateDir = join(stage.dir, 'agents', name);
  // A cloned disk has the node's secret too.
  const secret = join(settings['NODE_ROLE'] ?? '', 'node-secret');
  await cp(join(settings['STATE_DIR'] ?? '', secret), join(stateDir, secret));
  const [program, ...words] = [...prefix, process.execPath];
  const command: Argv = [
    program ?? process.execPath,
    ...words,
    join(repositoryRoot, 'bin', 'berth'),
    'agent',
  ];
  const agent = await startProcess(command, {
    name,
    logFile: join(stage.dir, 'logs', `${name}.log`),
    env: {
      ...settings,
      LOG_FORMAT: 'json',
      STATE_DIR: stateDir,
      LISTEN: `127.0.0.1:${port}`,
    },
  });
  await untilReady(
    agent,
    async () =>
      (await fetch(`http://127.0.0.1:${port}/readyz`, { signal: AbortSignal.timeout(2_000) })).ok,
    30_000,
  );
  return agent;
}

/** Starts a second process with the same identity, like a cloned machine. */
export const startTwin = (stage: Stage, as: string): Promise<RunningProcess> =>
  startAgent(stage, as, `${as}-twin`, []);

/** Runs `play` while the machine's agent runs under another hostname, on the same disk. */
export async function withHostname(
  stage: Stage,
  as: string,
  hostname: string,
  play: () => Promise<void>,
): Promise<void> {
  const port = await freePort();
  const settings = await settingsOf(stage.agent(as).process().pid);
  await stage.agent(as).crash();
  const renamed = await startProcess(BERTH_AGENT, {
    name: hostname,
    logFile: join(stage.dir, 'logs', `${hostname}.log`),
    env: { ...settings, NODE_NAME: hostname, LOG_FORMAT: 'json', LISTEN: `127.0.0.1:${port}` },
  });
  try {
    await untilReady(
      renamed,
      async () => (await fetch(`http://127.0.0.1:${port}/readyz`)).ok,
      30_000,
    );
    await play();
  } finally {
    await renamed.stop();
    await stage.agent(as).start();
  }
}

/** Starts another machine with the same hostname and an empty disk. It never becomes ready. */
export async function startNamesake(
  stage: Stage,
  as: string,
  hostIp: string,
): Promise<RunningProcess> {
  const settings = await settingsOf(stage.agent(as).process().pid);
  const stateDir = join(stage.dir, 'agents', `${as}-other`);
  return startProcess(BERTH_AGENT, {
    name: `${as}-other`,
    logFile: join(stage.dir, 'logs', `${as}-other.log`),
    env: {
      ...settings,
      HOST_IP: hostIp,
      LOG_FORMAT: 'json',
      STATE_DIR: stateDir,
      SVC_ROOT: join(stateDir, 'svc'),
    },
  });
}

export const whyNoFaketime = (): string | undefined =>
  findProgram('faketime') === undefined ? 'no faketime (apt-get install faketime)' : undefined;

/** Runs `play` while the agent's clock is wrong by `offset`. */
export async function withClock(
  stage: Stage,
  as: string,
  offset: string,
  play: () => Promise<void>,
): Promise<void> {
  const shifted = await startAgent(stage, as, `${as}-clock${offset}`, ['faketime', '-f', offset]);
  // The crash comes last, because the settings are read from the running agent.
  await stage.agent(as).crash();
  try {
    await play();
  } finally {
    await shifted.stop();
    await stage.agent(as).start();
  }
}
