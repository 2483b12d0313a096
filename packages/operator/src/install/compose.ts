/**
 * `berth install all --compose`: writes the files of deploy/compose.yml and its settings. The
 * container `prepare` generates the secrets.
 */
import { existsSync, statSync } from 'node:fs';
import { isIP } from 'node:net';
import { defined } from '@berth/kit/defined';
import { exec, execOk } from '@berth/kit/exec';
import { print, Problem } from '../lib/command.ts';
import { type Access, ETC, parseEnv, readText } from '../lib/etc-files.ts';
import { PROGRAM_ENV } from '../lib/machine.ts';
import type { AcmeChallenge } from '../lib/traefik-config.ts';
import type { Wanted } from './changes.ts';
import { shipped, shippedFiles } from './shipped.ts';

export const COMPOSE = `${ETC}/compose`;
export const COMPOSE_ENV = `${COMPOSE}/.env`;
/** User that every Berth container runs as. */
const USER = { uid: 10_001, gid: 10_001 };
const ROOT = { uid: 0, gid: 0 };
const SOCKET = '/var/run/docker.sock';
const SECRET_FOLDERS = ['control-plane', 'gateway', 'agent-builder', 'agent-deploy', 'registry'];
const CHALLENGES = {
  'tls-alpn-01': 'tlschallenge=true',
  'http-01': 'httpchallenge.entrypoint=web',
} as const;

export type ComposeSettings = {
  baseDomain: string;
  admins: string;
  acmeEmail: string;
  internalAddress: string | undefined;
  acmeCaServer: string | undefined;
  acmeChallenge: AcmeChallenge | undefined;
  engineGid: number;
  /** Names of the flags that the operator gave in this run. */
  flags: ReadonlySet<string>;
};

/** Returns the settings of an older run. */
export const composeEnv = (): ReadonlyMap<string, string> => parseEnv(readText(COMPOSE_ENV) ?? '');

const BY_FLAG: Record<string, string> = {
  BASE_DOMAIN: 'base-domain',
  ADMIN_EMAILS: 'admin',
  ACME_EMAIL: 'acme-email',
  ACME_CA_SERVER: 'acme-ca-server',
  ACME_CHALLENGE_OPTION: 'acme-challenge',
  INTERNAL_IP: 'internal-address',
  REGISTRY_ADDR: 'internal-address',
};

export function wantedForCompose(settings: ComposeSettings): Wanted[] {
  const {
    baseDomain,
    admins,
    acmeEmail,
    internalAddress,
    acmeCaServer,
    acmeChallenge,
    engineGid,
    flags,
  } = settings;
  if (acmeChallenge === 'dns-01')
    throw new Problem(
      'dns-01 needs a DNS provider: install without it, then edit compose.yml (docs/https.md)',
    );
  if (internalAddress !== undefined && isIP(internalAddress) === 6)
    throw new Problem('compose needs an IPv4 address: its network has no IPv6');
  const open: Access = { mode: 0o755, ...ROOT };
  const closed: Access = { mode: 0o700, ...USER };
  const values = {
    BASE_DOMAIN: baseDomain,
    ACME_EMAIL: acmeEmail,
    ADMIN_EMAILS: admins,
    ENGINE_GID: String(engineGid),
    ...defined({
      ACME_CA_SERVER: acmeCaServer,
      ACME_CHALLENGE_OPTION: acmeChallenge === undefined ? undefined : CHALLENGES[acmeChallenge],
      INTERNAL_IP: internalAddress,
      REGISTRY_ADDR: internalAddress === undefined ? undefined : `registry.${baseDomain}`,
    }),
  };
  const namesFromFlags = new Set(
    Object.keys(values).filter((name) => flags.has(BY_FLAG[name] ?? '')),
  );
  const folder = (path: string, access: Access): Wanted => ({ kind: 'folder', path, access });
  return [
    // Do not change existing folders: they belong to the Berth package or to the operator.
    ...[folder(ETC, open), folder('/svc', open), folder('/svc/data', closed)].filter(
      (one) => one.kind === 'folder' && !existsSync(one.path),
    ),
    ...[
      COMPOSE,
      ...['compose', 'traefik', 'traefik/dynamic'].map((name) => `${COMPOSE}/${name}`),
    ].map((path) => folder(path, open)),
    folder(`${ETC}/secrets`, closed),
    ...SECRET_FOLDERS.map((name) => folder(`${ETC}/secrets/${name}`, closed)),
    ...shippedFiles(['compose.yml', 'compose', 'traefik']).map(
      (path): Wanted => ({
        kind: 'shipped',
        path: `${COMPOSE}/${path}`,
        access: { mode: path.endsWith('.sh') ? 0o755 : 0o644, ...ROOT },
        from: path,
        text: shipped(path),
      }),
    ),
    {
      kind: 'env',
      path: COMPOSE_ENV,
      access: { mode: 0o600, ...ROOT },
      values,
      given: namesFromFlags,
    },
  ];
}

/** Returns the group of the engine's socket. */
export function engineGid(): number {
  const socketStats = statSync(SOCKET, { throwIfNoEntry: false });
  if (socketStats?.isSocket() !== true)
    throw new Problem(
      `there is no container engine at ${SOCKET}: apt-get install docker.io docker-compose`,
    );
  return socketStats.gid;
}

const LEAST = [2, 24] as const;

/** Returns the problem with compose on this machine, or undefined if there is none. */
export async function composeProblem(): Promise<string | undefined> {
  const answer = await exec(['docker', 'compose', 'version', '--short'], {
    env: PROGRAM_ENV,
    timeoutMs: 20_000,
  }).catch(() => undefined);
  const [, major, minor] = /(\d+)\.(\d+)/.exec(answer?.code === 0 ? answer.stdout : '') ?? [];
  const isGood =
    Number(major) > LEAST[0] || (Number(major) === LEAST[0] && Number(minor) >= LEAST[1]);
  return isGood
    ? undefined
    : `docker compose ${LEAST.join('.')} or newer is missing: apt-get install docker-compose ` +
        '(Debian 13), or put the program of github.com/docker/compose/releases at ' +
        '/usr/local/lib/docker/cli-plugins/docker-compose with mode 0755';
}

const MINUTES = 60_000;

export async function startCompose(baseDomain: string): Promise<void> {
  const compose = ['docker', 'compose'];
  // Run in the folder, because compose reads compose.override.yml there; with `-f` it does not.
  const inFolder = { env: PROGRAM_ENV, cwd: COMPOSE };
  const up = await exec([...compose, 'up', '-d', '--wait', '--wait-timeout', '300'], {
    ...inFolder,
    timeoutMs: 15 * MINUTES,
  });
  if (up.code !== 0) {
    const log = await exec([...compose, 'logs', '--no-color', '--tail', '20'], {
      ...inFolder,
      timeoutMs: MINUTES,
    });
    throw new Problem(`docker compose up failed:\n${up.stderr.trim()}\n${log.stdout.trim()}`);
  }
  const shown = await execOk([...compose, 'ps', '--format', '{{.Service}} {{.Status}}'], {
    ...inFolder,
    timeoutMs: MINUTES,
  });
  for (const line of shown.stdout.trim().split('\n')) print(`ready: ${line}`);
  print(`Berth runs: https://${baseDomain}`);
  print(
    `first password: cd ${COMPOSE} && docker compose exec control-plane cat ` +
      '/var/lib/berth/admin-password',
  );
  print(`sign in on your computer: berth login https://${baseDomain}`);
}
