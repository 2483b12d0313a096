/** Starts the units of this machine, and waits until each part is ready. */
import { statSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { exec } from '@berth/kit/exec';
import { messageOf } from '@berth/kit/message-of';
import { print, Problem } from '../lib/command.ts';
import { ETC } from '../lib/etc-files.ts';
import { PROGRAM_ENV } from '../lib/machine.ts';
import { hasSystemd, lastLines, systemctl, unitStartedAt, unitState } from '../lib/units.ts';
import { DEBIAN_REGISTRY, hasDebianRegistry } from './checks.ts';
import { ENV_FILES, type Part, type Settings } from './settings.ts';
import { AGENT_PORTS, RELAY_URL, SECRETS } from './wanted.ts';

type Unit = {
  name: string;
  /** Files that the unit reads when it starts. */
  files: readonly string[];
  /**
   * Returns undefined if the unit is ready, else the reason. Throws Problem if it never will be.
   */
  ready: () => Promise<string | undefined>;
};

const DEADLINE_MS = 120_000;
const STEP_MS = 500;
const ASK_MS = 5_000;

type Asked = { status: number; text: string } | { problem: string };

async function ask(url: string): Promise<Asked> {
  try {
    const answer = await fetch(url, { redirect: 'manual', signal: AbortSignal.timeout(ASK_MS) });
    return { status: answer.status, text: await answer.text() };
  } catch (error) {
    const reason =
      error instanceof Error && error.cause instanceof Error
        ? error.cause.message
        : messageOf(error);
    return { problem: `${url} does not answer: ${reason}` };
  }
}

/** Returns undefined if the answer is good, else the reason. */
function problemOf(url: string, asked: Asked, good: readonly number[] = [200]): string | undefined {
  if ('problem' in asked) return asked.problem;
  if (good.includes(asked.status)) return undefined;
  return `${url} answers ${asked.status}: ${asked.text.slice(0, 300)}`;
}

const answers = (url: string, good?: readonly number[]) => async (): Promise<string | undefined> =>
  problemOf(url, await ask(url), good);

const agentReady =
  (role: 'builder' | 'deploy', isLocal: boolean) => async (): Promise<string | undefined> => {
    const url = `http://127.0.0.1:${AGENT_PORTS[role]}/readyz`;
    const asked = await ask(url);
    const refused = 'problem' in asked ? null : refusalIn(asked.text);
    if (refused === null) return problemOf(url, asked);
    if (isLocal)
      throw new Problem(
        `berth-agent@${role}: ${refused}: compare AGENT_SECRET of the agent and of the control ` +
          `plane below ${SECRETS}`,
      );
    throw new Problem(
      `berth-agent@${role}: ${refused}. A join token works once, for one role, and for an hour ` +
        'unless it was made for longer. Get a new one: berth node join-token --role ' +
        `${role}. Then: berth install agent --role ${role} --join-token-file - --start`,
    );
  };

/**
 * Returns why the control plane refuses the machine of this agent, or null. Waiting does not
 * resolve a refusal.
 */
function refusalIn(readyz: string): string | null {
  try {
    return (JSON.parse(readyz) as { refusal?: string | null }).refusal ?? null;
  } catch {
    return null;
  }
}

const secretsOf = (process: string, ...names: string[]): string[] =>
  names.map((name) => `${SECRETS}/${process}/${name}`);

/** Returns the units in start order: each server before its clients. */
function unitsOf({ parts, controlPlane }: Settings): Unit[] {
  const isLocal = parts.has('control-plane');
  const units: Record<Exclude<Part, 'proxy'> | 'relay' | 'proxy', Unit> = {
    registry: {
      name: 'berth-registry',
      files: [ENV_FILES.registry, `${ETC}/registry.yml`, ...secretsOf('registry', 'htpasswd')],
      ready: answers('http://127.0.0.1:5000/v2/', [200, 401]),
    },
    'control-plane': {
      name: 'berth-control-plane',
      files: [
        ENV_FILES['control-plane'],
        ...secretsOf(
          'control-plane',
          'AGENT_SECRET',
          'GATEWAY_SECRET',
          'JWT_SECRET',
          'SECRETS_KEY',
          'REGISTRY_PASSWORD',
        ),
      ],
      ready: answers(`${controlPlane}/readyz`),
    },
    gateway: {
      name: 'berth-gateway',
      files: [ENV_FILES.gateway, ...secretsOf('gateway', 'GATEWAY_SECRET', 'SESSION_SECRET')],
      ready: answers('http://127.0.0.1:4180/readyz'),
    },
    relay: { name: 'berth-relay', files: [ENV_FILES.relay], ready: answers(`${RELAY_URL}/readyz`) },
    // Traefik watches the files below dynamic/, so they need no restart.
    proxy: {
      name: 'berth-proxy',
      files: [ENV_FILES.proxy, `${ETC}/traefik/traefik.yml`],
      ready: answers('http://127.0.0.1/', [404, 301, 308, 302, 200]),
    },
    builder: {
      name: 'berth-agent@builder',
      files: [ENV_FILES.builder, ...secretsOf('agent-builder', 'AGENT_SECRET', 'JOIN_TOKEN')],
      ready: agentReady('builder', isLocal),
    },
    deploy: {
      name: 'berth-agent@deploy',
      files: [ENV_FILES.deploy, ...secretsOf('agent-deploy', 'AGENT_SECRET', 'JOIN_TOKEN')],
      ready: agentReady('deploy', isLocal),
    },
  };
  return Object.entries(units)
    .filter(([part]) => parts.has((part === 'relay' ? 'proxy' : part) as Part))
    .map(([, unit]) => unit);
}

/** Starts the units. Throws Problem with the log of a part that does not become ready. */
export async function start(settings: Settings): Promise<void> {
  if (!hasSystemd())
    throw new Problem('the settings are written. --start needs systemd, which does not run here');
  const units = unitsOf(settings);
  await systemctl('daemon-reload');
  if (settings.parts.has('registry') && hasDebianRegistry()) {
    await systemctl('disable', '--now', DEBIAN_REGISTRY);
    print(
      `stopped: ${DEBIAN_REGISTRY}, which Debian's package starts without a password; ` +
        'berth-registry replaces it',
    );
  }
  await systemctl('enable', '--quiet', ...units.map(({ name }) => name));
  for (const unit of units) await startOne(unit);
  for (const unit of units) await untilReady(unit);
}

/**
 * Restarts a unit that started before its settings were written, by this run or by a killed run.
 */
async function startOne({ name, files }: Unit): Promise<void> {
  const since = await unitStartedAt(name);
  const isOld =
    since !== undefined &&
    files.some((file) => (statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0) > since);
  if (since !== undefined && !isOld) return;
  // After several quick failures caused by wrong settings, systemd would refuse to start the unit.
  await exec(['systemctl', 'reset-failed', name], { env: PROGRAM_ENV, timeoutMs: ASK_MS });
  await systemctl('restart', name);
  print(`${since === undefined ? 'started' : 'restarted'}: ${name}`);
}

async function untilReady({ name, ready }: Unit): Promise<void> {
  const deadline = performance.now() + DEADLINE_MS;
  for (;;) {
    const reason = await ready();
    if (reason === undefined) {
      print(`ready: ${name}`);
      return;
    }
    const hasFailed = (await unitState(name)) === 'failed';
    if (hasFailed || performance.now() > deadline)
      throw new Problem(
        `${name} ${hasFailed ? 'has failed' : `is not ready after ${DEADLINE_MS / 1000} s`}: ` +
          `${reason}\n${await lastLines(name, 15)}\nAll of its log: journalctl -u ${name}`,
      );
    await sleep(STEP_MS);
  }
}
