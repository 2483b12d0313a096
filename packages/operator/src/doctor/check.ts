/** The type of a check, and the facts that several checks share. Each fact is read only once. */
import { dirname } from 'node:path';
import { defined } from '@berth/kit/defined';
import type { OperatorNote } from '@berth/wire/system';
import type { Result } from './result.ts';
import { type InstalledRole, lastLine, type MachineRole } from './roles.ts';
import type { Ran, System } from './system.ts';

export type Check = {
  name: string;
  /** Roles to check. The check runs only if this machine has an instance of one of these roles. */
  roles: readonly MachineRole[];
  run(context: Context): Promise<Result[]>;
};

export type Context = {
  system: System;
  /** Instances of the check's roles. */
  instances: readonly InstalledRole[];
  /** All roles of this machine, including roles that the operator did not ask for. */
  all: readonly InstalledRole[];
  facts: Facts;
};

export type Readiness = {
  status: number;
  state: string;
  parts: { name: string; ok: boolean; detail: string }[];
  notes: string[];
  /** The notes with their kinds; null: the process is of an earlier version, or has no notes. */
  warnings: OperatorNote[] | null;
  reasons: string[];
  /** Result of the process's last attempt to reach the control plane; `answers` if it succeeded. */
  controlPlane: string;
};
export type Reached<T> = { value: T } | { problem: string };

/** `auth: true` gives the command its own docker configuration, because it logs in. */
type DockerOptions = {
  timeoutMs?: number;
  stdin?: string;
  secrets?: readonly string[];
  auth?: true;
};

export type Facts = {
  /** Returns the base URL of this process on this machine, or null if it has none. */
  urlOf(instance: InstalledRole): Promise<string | null>;
  readiness(instance: InstalledRole): Promise<Reached<Readiness>>;
  /** Runs the docker command for the engine of this instance. */
  docker(
    instance: InstalledRole,
    args: readonly string[],
    more?: DockerOptions,
  ): Promise<Ran | null>;
};

const HTTP_MS = 5_000;
const DOCKER_MS = 10_000;
const DEFAULT_LISTEN: Partial<Record<MachineRole, string>> = {
  'control-plane': '127.0.0.1:8080',
  gateway: '127.0.0.1:4180',
  relay: '127.0.0.1:8082',
};

export const listenOf = ({
  role,
  settings,
}: Pick<InstalledRole, 'role' | 'settings'>): { host: string; port: number } | null => {
  const text = settings.get('LISTEN') || DEFAULT_LISTEN[role];
  const [, six, four, port] =
    /^(?:\[([0-9a-fA-F:.]+)\]|([A-Za-z0-9._-]*)):(\d{1,5})$/.exec(text ?? '') ?? [];
  return port === undefined ? null : { host: six ?? four ?? '', port: Number(port) };
};

export function createFacts(system: System): Facts {
  const readings = new Map<InstalledRole, Promise<Reached<Readiness>>>();
  const urlOf = async (instance: InstalledRole): Promise<string | null> => {
    const listen = listenOf(instance);
    if (listen === null) return null;
    const host =
      instance.how === 'compose' ? await addressOfContainer(system, instance) : hereOf(listen.host);
    return host === null
      ? null
      : `http://${host.includes(':') ? `[${host}]` : host}:${listen.port}`;
  };
  return {
    urlOf,
    readiness(instance) {
      const reading =
        readings.get(instance) ?? urlOf(instance).then((url) => readReadiness(system, url));
      readings.set(instance, reading);
      return reading;
    },
    docker(instance, args, { timeoutMs = DOCKER_MS, auth, ...more } = {}) {
      const host = instance.how === 'compose' ? undefined : instance.settings.get('DOCKER_HOST');
      const plugins =
        instance.how === 'compose' ? undefined : instance.settings.get('DOCKER_PLUGINS_DIR');
      const options = {
        timeoutMs,
        ...more,
        ...defined({ env: host === undefined ? undefined : { DOCKER_HOST: host } }),
      };
      if (auth !== true && plugins === undefined) return system.run(['docker', ...args], options);
      // Use a separate configuration, so that a login does not replace the operator's login.
      const config = JSON.stringify(
        plugins === undefined ? {} : { cliPluginsExtraDirs: [plugins] },
      );
      return system.withFile('config.json', config, (folder) =>
        system.run(['docker', '--config', folder, ...args], options),
      );
    },
  };
}

/** Loopback address of this machine for each address that means "all addresses". */
const LOOPBACK_OF: Record<string, string> = {
  '': '127.0.0.1',
  '0.0.0.0': '127.0.0.1',
  '::': '::1',
};
const hereOf = (host: string): string => LOOPBACK_OF[host] ?? host;

async function addressOfContainer(system: System, { name }: InstalledRole): Promise<string | null> {
  const listed = await system.run(
    ['docker', 'ps', '-q', '--filter', `label=com.docker.compose.service=${name}`],
    { timeoutMs: DOCKER_MS },
  );
  const id = listed?.stdout.trim().split('\n')[0] ?? '';
  if (id === '') return null;
  const format = '{{range .NetworkSettings.Networks}}{{.IPAddress}} {{end}}';
  const seen = await system.run(['docker', 'inspect', '--format', format, id], {
    timeoutMs: DOCKER_MS,
  });
  return seen?.stdout.trim().split(' ')[0] || null;
}

async function readReadiness(system: System, url: string | null): Promise<Reached<Readiness>> {
  if (url === null) return { problem: 'its address on this machine is unknown' };
  try {
    const { status, text } = await system.get(`${url}/readyz`, { timeoutMs: HTTP_MS });
    const body = JSON.parse(text) as { status?: string; control_plane?: string } & Partial<
      Pick<Readiness, 'parts' | 'notes' | 'warnings' | 'reasons'>
    >;
    const state = body.status ?? (status === 200 ? 'ready' : 'not_ready');
    return {
      value: {
        status,
        state,
        parts: body.parts ?? [],
        notes: body.notes ?? [],
        warnings: body.warnings ?? null,
        reasons: body.reasons ?? [],
        controlPlane: body.control_plane ?? 'answers',
      },
    };
  } catch (error) {
    return { problem: `${url} ${whyUnreached(error)}` };
  }
}

/** Returns the reason as a predicate, for example “does not answer (connection refused)”. */
export function whyUnreached(error: unknown): string {
  const { name, message, cause } = error as Error;
  if (name === 'TimeoutError') return 'does not answer in time';
  const code =
    (cause as NodeJS.ErrnoException | undefined)?.code ?? (error as NodeJS.ErrnoException).code;
  const words: Record<string, string> = {
    ECONNREFUSED: 'does not answer (connection refused)',
    ENOTFOUND: 'does not answer (its name is unknown)',
    EAI_AGAIN: 'does not answer (no DNS server answers)',
    EHOSTUNREACH: 'does not answer (no route to the host)',
    ENETUNREACH: 'does not answer (the network is unreachable)',
    ECONNRESET: 'closed the connection',
  };
  return words[code ?? ''] ?? `gave no usable answer (${code ?? message.slice(0, 200)})`;
}

/** Returns why a program gave no result, or null if it gave one. */
export function failedRun(program: string, ran: Ran | null): string | null {
  if (ran === null) return `the program ${program} is not installed`;
  if (ran.ended !== null) return `${program} did not end in time`;
  return ran.code === 0
    ? null
    : lastLine(ran.stderr) || lastLine(ran.stdout) || `${program} exited with ${ran.code}`;
}

/** Returns the control plane of this machine, if this instance uses it. */
function controlPlaneBeside(
  all: Context['all'],
  instance: InstalledRole,
): InstalledRole | undefined {
  if (instance.role === 'control-plane') return instance;
  // The host name of the control plane might exist only inside the container network.
  return instance.how === 'compose' ? all.find(({ role }) => role === 'control-plane') : undefined;
}

/** Returns the address at which this instance reaches the control plane. */
export async function controlPlaneOf(
  { facts, all }: Context,
  instance: InstalledRole,
): Promise<string | null> {
  const here = controlPlaneBeside(all, instance);
  return here === undefined
    ? (instance.settings.get('CONTROL_PLANE_URL')?.replace(/\/+$/, '') ?? null)
    : facts.urlOf(here);
}

/**
 * Returns a compose command for people to copy. The command changes the folder instead of using
 * `-f`, so that compose also reads compose.override.yml.
 */
export const composeCommand = ({ file }: Pick<InstalledRole, 'file'>, args: string): string =>
  `cd ${dirname(file ?? '.')} && docker compose ${args}`;

/** Returns the command that restarts an instance. */
export function restartOf({ how, name, file, role }: InstalledRole): string {
  if (how === 'compose') return composeCommand({ file }, `restart ${name}`);
  return how === 'package' ? `systemctl restart ${unitOf({ name })}` : `bin/berth ${role}`;
}

/** Returns the command that shows the log of an instance. */
export function logOf({ how, name, file }: InstalledRole): string {
  if (how === 'compose') return composeCommand({ file }, `logs --tail 50 ${name}`);
  return how === 'package' ? `journalctl -u ${unitOf({ name })} -n 50` : 'its log';
}

/** Returns the name of the unit: `agent-builder` becomes berth-agent@builder. */
export const unitOf = ({ name }: Pick<InstalledRole, 'name'>): string =>
  `berth-${name.startsWith('agent-') ? name.replace('agent-', 'agent@') : name}`;
