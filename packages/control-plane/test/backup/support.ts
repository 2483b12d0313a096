/**
 * A control plane with a database that has every kind of row, and backups of it in this process.
 */
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { makeBackup, type Made } from '../../src/backup/make.ts';
import { restoreBackup } from '../../src/backup/restore.ts';
import { backupAt, targetOf } from '../../src/backup/targets.ts';
import { verifyBackup } from '../../src/backup/verify.ts';
import { readBackupConfig } from '../../src/config.ts';
import { openBackups } from '../../src/store/open.ts';
import type { Route } from '@berth/wire/route';
import { type RouteName, ROUTES } from '@berth/wire/routes';
import { ROLES } from '@berth/wire/vocabulary';
import { createWorld } from '../api/deployed.ts';
import { type Api, createApi, ENV, type Input } from '../api/harness.ts';

function folder(): string {
  const dir = mkdtempSync(join(tmpdir(), 'berth-backup-'));
  onTestFinished(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

export function folders(): { dir: string; backups: string; databaseUrl: string } {
  const dir = folder();
  const backups = join(dir, 'backups');
  mkdirSync(backups);
  return { dir, backups, databaseUrl: `sqlite:${join(dir, 'berth.db')}` };
}

/** A folder of settings that does not exist. */
export const NO_ETC = '/nonexistent/berth';
type Env = Record<string, string | undefined>;
export const configOf = (databaseUrl: string, env: Env = {}) =>
  readBackupConfig({
    PATH: process.env['PATH'],
    SECRETS_KEY: ENV.SECRETS_KEY,
    BASE_DOMAIN: ENV.BASE_DOMAIN,
    // This machine may have a Berth of its own.
    BERTH_ETC: NO_ETC,
    ...env,
    DATABASE_URL: databaseUrl,
  });

type Options = {
  env?: Env;
  withKeys?: boolean;
  recipients?: string[];
  identities?: string[];
  asNew?: boolean;
};

export async function backUp(
  databaseUrl: string,
  to: string,
  { env, withKeys = false, recipients = [] }: Options = {},
): Promise<Made> {
  const record = await openBackups({ databaseUrl, log: { info: () => {}, warn: () => {} } });
  try {
    const target = await targetOf(to, { endpoint: null });
    const made = await makeBackup({
      config: configOf(databaseUrl, env),
      target,
      withKeys,
      recipients,
      record,
      scheduled: null,
      now: Date.now,
    });
    if (made === null) throw new Error('no backup was made');
    return made;
  } finally {
    await record.close();
  }
}

export async function verify(
  at: string,
  {
    env,
    identities = [],
    databaseUrl = 'sqlite:nothing.db',
  }: Options & { databaseUrl?: string } = {},
) {
  return verifyBackup(
    { ...(await backupAt(at, { endpoint: null })), identities },
    configOf(databaseUrl, env),
  );
}

export async function restore(
  at: string,
  databaseUrl: string,
  { env, identities = [], asNew = false }: Options = {},
) {
  return restoreBackup(
    { ...(await backupAt(at, { endpoint: null })), identities },
    { config: configOf(databaseUrl, env), asNew, now: Date.now },
  );
}

/** Starts a control plane. The test ends it; `close` ends it before. */
export async function controlPlane(databaseUrl: string): Promise<Api> {
  // A busy machine must not change the answers: nodes stay online, and none is replaced.
  const api = await createApi({
    databaseUrl,
    env: { OFFLINE_AFTER: '1h', FAILOVER_AFTER: 'none' },
  });
  let closed = false;
  const close = async (): Promise<void> => {
    if (!closed) await api.close();
    closed = true;
  };
  onTestFinished(close);
  return { ...api, close };
}

/**
 * Creates live projects with secrets, a key and a hook, nodes, people and tokens. Returns the ids
 * of the projects.
 */
export async function fill(api: Api): Promise<string[]> {
  const ok = async (name: RouteName, input: Input): Promise<Record<string, unknown>> => {
    const reply = await api.call(name, { as: 'admin', ...input });
    if (reply.status >= 300) throw new Error(`${name}: ${reply.text}`);
    return reply.json;
  };
  const world = await createWorld(api);
  const ids: string[] = [];
  for (const name of ['shop', 'blog']) {
    const body = {
      name,
      git_url: `https://git.example.com/${name}.git`,
      domain_prefix: name,
      container_port: 8080,
      env: { A: 'ü', B: '2' },
    };
    const params = { id: String((await ok('createProject', { body }))['id']) };
    ids.push(params.id);
    await ok('putSecret', {
      params: { ...params, name: 'TOKEN' },
      body: { value: `secret of ${name}` },
    });
    await ok('createDeployKey', { params });
    await ok('putHook', { params, body: { forge: 'github' } });
    await world.live(params.id);
  }
  await ok('createToken', {
    body: {
      name: 'ci',
      role: 'viewer',
      expires_at: new Date(Date.now() + 86_400_000).toISOString(),
    },
  });
  await ok('createUser', {
    body: { email: 'dev@example.com', role: 'developer', password: 'correct horse' },
  });
  await ok('createJoinToken', { body: { role: 'deploy' } });
  return ids;
}

/** Not compared: about the process, or about the moment. */
const OF_THE_PROCESS = [
  'me',
  'placement',
  'openapi',
  'healthz',
  'readyz',
  'metrics',
  'version',
  'traefikConfig',
  'cacheRoom',
  'nodeDisk',
];

/** A control plane in this process or another one. */
type Callable = {
  call(name: RouteName, input?: Input): Promise<{ status: number; json: Record<string, unknown> }>;
};

/** Returns the answers of all GET routes for people, by address. */
export async function everything(api: Callable): Promise<Record<string, unknown>> {
  const answers: Record<string, unknown> = {};
  const get = async (
    name: RouteName,
    params: Record<string, string> = {},
  ): Promise<{ id?: string; name?: string; host?: string }[]> => {
    const { json, status } = await api.call(name, { params, as: 'admin' });
    // Metrics without a period are those of the last hour.
    if (name === 'projectMetrics') for (const moment of ['from', 'to']) delete json[moment];
    // The answer of an error names its request.
    // A restored control plane says so.
    if (name === 'system') {
      const { readiness } = json as {
        readiness?: { notes: string[]; warnings?: { text: string }[] };
      };
      const isOther = (note: string): boolean => !note.startsWith('restored on ');
      if (readiness !== undefined) {
        readiness.notes = readiness.notes.filter(isOther);
        readiness.warnings = (readiness.warnings ?? []).filter(({ text }) => isOther(text));
      }
    }
    answers[`${name} ${Object.values(params).join(' ')}`] =
      status === 200 ? json : [status, json['code']];
    return (json['items'] ?? []) as { id?: string }[];
  };
  const all = Object.entries<Route>(ROUTES) as [RouteName, Route][];
  const routes = all.filter(
    ([name, { method, who }]) =>
      method === 'GET' &&
      (ROLES as readonly string[]).includes(who) &&
      !OF_THE_PROCESS.includes(name),
  );
  for (const [name, { path }] of routes.filter(([, { path }]) => !path.includes(':'))) {
    const items = await get(name);
    for (const item of items)
      for (const [detail] of routes.filter(([, route]) =>
        new RegExp(`^${path}/:(id|host)(/[a-z-]+)*$`).test(route.path),
      )) {
        const found = await get(detail, { id: item.id ?? '', host: item.host ?? '' });
        if (detail === 'listSecrets')
          for (const secret of found)
            await get('getSecret', { id: item.id ?? '', name: secret.name ?? '' });
      }
  }
  return answers;
}
