/** Makes the processes of this machine reload their files, and asks which values they have. */
import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { defined } from '@berth/kit/defined';
import { exec } from '@berth/kit/exec';
import { messageOf } from '@berth/kit/message-of';
import { createClient } from '@berth/wire/client';
import type { Rotation } from '@berth/wire/rotation';
import { Problem } from '../lib/command.ts';
import { parseEnv, readText } from '../lib/etc-files.ts';
import { PROGRAM_ENV } from '../lib/machine.ts';
import { hasSystemd, systemctl, unitState } from '../lib/units.ts';
import { dataFolder, findCopies } from './copies.ts';
import { SECRETS } from './names.ts';

export type How = {
  etc: string;
  pids: readonly number[];
  reload: boolean;
  readRotation: ReadRotation;
};
/**
 * Returns the values of the processes, or null if this machine cannot find out. Rejects if the
 * database does not answer.
 */
export type ReadRotation = (how: How) => Promise<Rotation | null>;

const COMMAND_MS = 60_000;
const composeFile = (etc: string): string => join(etc, 'compose', 'compose.yml');
export const usesCompose = ({ etc }: How): boolean => existsSync(composeFile(etc));
/**
 * Runs compose in its folder, because it reads compose.override.yml there; with `-f` it does not.
 */
const compose = (etc: string, ...args: string[]): Promise<string> =>
  run(['docker', 'compose', ...args], { cwd: join(etc, 'compose') });
/** Returns the unit of a process: `agent-builder` becomes berth-agent@builder. */
const unitOf = (process: string): string => `berth-${process.replace(/^agent-/, 'agent@')}`;

/**
 * Sends SIGHUP to the processes, and returns a description for people. A stopped process needs no
 * signal, because it reads its files when it starts.
 */
export async function reload(how: How, processes: readonly string[]): Promise<string> {
  const names = [...new Set(processes)].sort();
  if (!how.reload) return `reload these processes now (SIGHUP): ${names.join(', ')}`;
  if (how.pids.length > 0) {
    for (const pid of how.pids) {
      try {
        process.kill(pid, 'SIGHUP');
      } catch (error) {
        throw new Problem(`process ${pid} cannot be reloaded: ${messageOf(error)}`, {
          cause: error,
        });
      }
    }
    return `sent SIGHUP to ${how.pids.join(', ')}`;
  }
  if (usesCompose(how)) {
    const running = await compose(how.etc, 'ps', '--services', '--status', 'running');
    const services = names.filter((name) => running.split('\n').includes(name));
    if (services.length > 0) await compose(how.etc, 'kill', '-s', 'HUP', ...services);
    return services.length === 0
      ? 'no container to reload'
      : `sent SIGHUP to the containers ${services.join(', ')}`;
  }
  if (!hasSystemd())
    throw new Problem(
      'this machine has no systemd and no compose file: name the processes with --pid, or use ' +
        '--no-reload and send SIGHUP',
    );
  const active: string[] = [];
  for (const unit of names.map(unitOf)) if ((await unitState(unit)) === 'active') active.push(unit);
  if (active.length > 0) await systemctl('reload', ...active);
  return active.length === 0 ? 'no unit to reload' : `reloaded ${active.join(', ')}`;
}

async function run(
  argv: readonly string[],
  options: { env?: NodeJS.ProcessEnv; cwd?: string } = {},
): Promise<string> {
  const result = await exec([...argv], { env: PROGRAM_ENV, timeoutMs: COMMAND_MS, ...options });
  if (result.code !== 0)
    throw new Problem(
      `${argv[0]} failed: ${result.stderr.trim() || result.stdout.trim() || 'no output'}`,
    );
  return result.stdout;
}

/**
 * Asks the database if this machine has a control plane; otherwise asks the control plane with the
 * gateway's secret. Returns null if this machine has neither a control plane nor a gateway.
 */
export async function readRotation(how: How): Promise<Rotation | null> {
  const { etc } = how;
  const controlPlane = readText(join(etc, 'control-plane.env'));
  if (usesCompose(how))
    return JSON.parse(
      await compose(etc, 'exec', '-T', 'control-plane', 'berth', 'rotation'),
    ) as Rotation;
  if (controlPlane !== undefined)
    return JSON.parse(await ofDatabase(parseEnv(controlPlane))) as Rotation;
  const gateway = readText(join(etc, 'gateway.env'));
  return gateway === undefined ? null : ofGateway(etc, parseEnv(gateway));
}

async function ofDatabase(env: ReadonlyMap<string, string>): Promise<string> {
  const folder = dataFolder(env);
  const database =
    env.get('DATABASE_URL') ??
    (env.has('DATABASE_URL_FILE') ? undefined : `sqlite:${join(folder, 'berth.db')}`);
  const argv = [
    process.execPath,
    ...(process.argv[1] === undefined ? [] : [process.argv[1]]),
    'rotation',
  ];
  return run([...(await asOwner(folder)), ...argv], {
    env: {
      ...PROGRAM_ENV,
      ...defined({
        DATABASE_URL: database,
        DATABASE_URL_FILE: env.has('DATABASE_URL_FILE') ? env.get('DATABASE_URL_FILE') : undefined,
      }),
    },
    cwd: existsSync(folder) ? folder : '/',
  });
}

/**
 * Returns a command prefix that runs as the folder's owner. As root, SQLite could create files
 * beside the database that the owner cannot open.
 */
async function asOwner(folder: string): Promise<string[]> {
  if (process.getuid?.() !== 0 || !existsSync(folder)) return [];
  const { uid, gid } = statSync(folder);
  return uid === 0 ? [] : ['setpriv', `--reuid=${uid}`, `--regid=${gid}`, '--clear-groups', '--'];
}

async function ofGateway(etc: string, env: ReadonlyMap<string, string>): Promise<Rotation> {
  const url = env.get('CONTROL_PLANE_URL');
  const secret = findCopies(etc, SECRETS.gateway)[0]?.values[0];
  if (url === undefined || secret === undefined)
    throw new Problem(`${etc}/gateway.env needs CONTROL_PLANE_URL and GATEWAY_SECRET_FILE`);
  const client = createClient({ baseUrl: url, headers: () => ({ 'x-gateway-secret': secret }) });
  return client.call('gatewayRotation', {});
}
