/**
 * Finds the roles that this machine has settings for: in the files of /etc/berth, in its compose
 * project, or in the environment.
 */
import { join } from 'node:path';
import { parseEnv } from '../lib/etc-files.ts';
import type { System } from './system.ts';

export const ROLES = ['control-plane', 'gateway', 'registry', 'proxy', 'relay', 'agent'] as const;
export type MachineRole = (typeof ROLES)[number];

/** One Berth process on this machine. */
export type InstalledRole = {
  role: MachineRole;
  /** Name as in files and units, for example `agent-builder`. */
  name: string;
  how: 'package' | 'compose' | 'environment';
  /** File with the settings; null if the settings are in the environment. */
  file: string | null;
  settings: ReadonlyMap<string, string>;
  /** With compose: maps paths inside the container to paths of this machine. */
  mounts: ReadonlyMap<string, string>;
};

export type Found = { instances: InstalledRole[]; problems: string[] };

const NAME = /^(control-plane|gateway|registry|proxy|relay|agent(?:-[A-Za-z0-9_.-]+)?)\.env$/;
const COMPOSE_MS = 15_000;

export const composeFolder = (etc: string): string => join(etc, 'compose');

/**
 * Finds the instances. Reads the environment only if no file has settings. `problems` lists
 * settings that could not be read.
 */
export async function findRoles(system: System, etc: string): Promise<Found> {
  const machineRoles: Found = { instances: [], problems: [] };
  // With compose, the files in /etc/berth only add variables to the containers.
  if (await addCompose(system, etc, machineRoles)) return machineRoles;
  for (const file of await listed(system, etc, machineRoles)) {
    const name = NAME.exec(file)?.[1];
    if (name === undefined) continue;
    const path = join(etc, file);
    try {
      const text = (await system.read(path)) ?? '';
      const role = name.startsWith('agent') ? 'agent' : (name as MachineRole);
      machineRoles.instances.push({
        role,
        name,
        how: 'package',
        file: path,
        settings: parseEnv(text),
        mounts: new Map(),
      });
    } catch (error) {
      machineRoles.problems.push(unreadable(path, error));
    }
  }
  if (machineRoles.instances.length === 0 && machineRoles.problems.length === 0)
    machineRoles.instances.push(...fromEnvironment(system.env));
  return machineRoles;
}

/** Returns a role that has no file, with its settings from the environment. */
export function instanceFromEnvironment(role: MachineRole, env: System['env']): InstalledRole {
  const settings = new Map(
    Object.entries(env).flatMap(([name, value]) =>
      value === undefined || value === '' ? [] : [[name, value]],
    ),
  );
  const name =
    role === 'agent' && env['NODE_ROLE'] !== undefined ? `agent-${env['NODE_ROLE']}` : role;
  return { role, name, how: 'environment', file: null, settings, mounts: new Map() };
}

/** Settings that only one role requires, to recognise the role in the environment. */
const MARKS: readonly (readonly [MachineRole, string])[] = [
  ['agent', 'NODE_ROLE'],
  ['gateway', 'SESSION_SECRET'],
  ['gateway', 'SESSION_SECRET_FILE'],
  ['control-plane', 'BASE_DOMAIN'],
];
function fromEnvironment(env: System['env']): InstalledRole[] {
  const role = MARKS.find(([, setting]) => (env[setting] ?? '') !== '')?.[0];
  return role === undefined ? [] : [instanceFromEnvironment(role, env)];
}

async function listed(system: System, folder: string, found: Found): Promise<string[]> {
  try {
    return (await system.list(folder)).sort();
  } catch (error) {
    found.problems.push(unreadable(folder, error));
    return [];
  }
}

const unreadable = (path: string, error: unknown): string => {
  const { code } = error as NodeJS.ErrnoException;
  return code === 'EACCES' || code === 'EPERM'
    ? `${path}: permission denied; run as root`
    : `${path}: ${String(error)}`;
};

type Service = {
  command?: string[] | null;
  environment?: Record<string, string | null>;
  secrets?: { source: string; target?: string }[];
  volumes?: { type: string; source?: string; target: string }[];
};
type Project = { services?: Record<string, Service>; secrets?: Record<string, { file?: string }> };

function failureOf(answer: Awaited<ReturnType<System['run']>>): string {
  if (answer === null) return 'the docker command is missing';
  return answer.ended === null ? lastLine(answer.stderr) : 'it did not finish in time';
}

/** Adds the roles of the compose project. Returns false if this machine has no compose project. */
async function addCompose(system: System, etc: string, found: Found): Promise<boolean> {
  const folder = composeFolder(etc);
  const file = join(folder, 'compose.yml');
  if ((await system.stat(file).catch(() => undefined)) === undefined) return false;
  const answer = await system.run(['docker', 'compose', 'config', '--format', 'json'], {
    timeoutMs: COMPOSE_MS,
    cwd: folder,
  });
  if (answer === null || answer.code !== 0) {
    found.problems.push(`${file}: docker compose config failed: ${failureOf(answer)}`);
    return true;
  }
  const project = JSON.parse(answer.stdout) as Project;
  for (const [name, service] of Object.entries(project.services ?? {})) {
    const role = roleOf(name, service);
    if (role === null) continue;
    const settings = Object.entries(service.environment ?? {}).flatMap(([key, value]) =>
      value === null || value === '' ? [] : [[key, value] as const],
    );
    found.instances.push({
      role,
      name,
      how: 'compose',
      file,
      settings: new Map(settings),
      mounts: mountsOf(service, project),
    });
  }
  return true;
}

function roleOf(name: string, { command }: Service): MachineRole | null {
  const words = [command?.find((word) => (ROLES as readonly string[]).includes(word)), name];
  for (const word of words) {
    const role = ROLES.find((one) => word === one || word?.startsWith(`${one}-`) === true);
    if (role !== undefined) return role;
  }
  return name === 'traefik' ? 'proxy' : null;
}

function mountsOf(service: Service, project: Project): Map<string, string> {
  const mounts = new Map<string, string>();
  for (const { source, target } of service.secrets ?? []) {
    const file = project.secrets?.[source]?.file;
    if (file !== undefined)
      mounts.set(
        target?.startsWith('/') === true ? target : `/run/secrets/${target ?? source}`,
        file,
      );
  }
  for (const { type, source, target } of service.volumes ?? [])
    if (type === 'bind' && source !== undefined) mounts.set(target, source);
  return mounts;
}

export const lastLine = (text: string): string =>
  text.trim().split('\n').at(-1)?.slice(0, 300) ?? '';

/** Returns the path on this machine, or null if the path exists only in the container. */
export function pathHere({ how, mounts }: InstalledRole, path: string): string | null {
  if (how !== 'compose') return path;
  for (const [target, source] of mounts) {
    if (path === target) return source;
    if (path.startsWith(`${target}/`)) return source + path.slice(target.length);
  }
  return null;
}

/**
 * Returns the value of a setting, or the content of the file that NAME_FILE names. Returns
 * undefined if the setting is not set or the file cannot be read.
 */
export async function settingOf(
  system: System,
  instance: InstalledRole,
  name: string,
): Promise<string | undefined> {
  const direct = instance.settings.get(name);
  if (direct !== undefined && direct !== '') return direct;
  const file = instance.settings.get(`${name}_FILE`);
  const path = file === undefined || file === '' ? null : pathHere(instance, file);
  if (path === null) return undefined;
  try {
    const text = (await system.read(path))?.replace(/\r?\n$/, '');
    return text === '' ? undefined : text;
  } catch {
    return undefined;
  }
}
