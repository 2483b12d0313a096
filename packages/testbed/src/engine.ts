import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { findProgram, privateEngineWanted, userDockerHost } from './config.ts';
import { writeDockerConfig } from './docker-config.ts';
import { describeEngine, type Engine, engineAnswers, type EngineOptions } from './engine-handle.ts';
import { startOwnEngine } from './own-engine.ts';

export type { Engine, EngineOptions } from './engine-handle.ts';

/** No engine answers, and none can be started here. */
export class NoEngine extends Error {
  override readonly name = 'NoEngine';
}

/** Uses the engine that answers, or starts a private one. @throws NoEngine */
export async function startEngine(options: EngineOptions): Promise<Engine> {
  const wantsOwn = options.private === true || privateEngineWanted();
  if (!wantsOwn) {
    const host = userDockerHost();
    if (await engineAnswers(host)) return adoptEngine(host, options);
  }
  const why = whyNoOwnEngine();
  if (why !== undefined)
    throw new NoEngine(`no container engine answers and none can be started: ${why}`);
  return startOwnEngine(options);
}

/** Returns why startOwnEngine() cannot work here; undefined when it should. */
export function whyNoOwnEngine(): string | undefined {
  if (process.platform !== 'linux') return 'this is not Linux';
  if (process.getuid?.() !== 0) return 'not root';
  const missing = [
    'dockerd',
    'containerd',
    'docker',
    'iptables',
    'ip',
    'unshare',
    'nsenter',
    'setpriv',
  ].filter((program) => findProgram(program) === undefined);
  return missing.length === 0
    ? undefined
    : `missing: ${missing.join(', ')} (npm run setup installs them)`;
}

async function adoptEngine(host: string, options: EngineOptions): Promise<Engine> {
  const name = options.name ?? 'main';
  const dockerConfigDir = await writeDockerConfig(
    join(options.dir, `docker-config-${name}-${process.pid}`),
  );
  return describeEngine({
    name,
    host,
    dockerConfigDir,
    hostIp: '127.0.0.1',
    gatewayIp: '127.0.0.1',
    publishIp: '127.0.0.1',
    owned: false,
    outward: true,
    faults: undefined,
    stop: async () => {
      await rm(dockerConfigDir, { recursive: true, force: true });
    },
  });
}
