/**
 * Composition root: opens the database, builds the platform once, and hands each route and each
 * loop the parts that it names. Tests call it too and override some parts.
 */
import { join, resolve } from 'node:path';
import { type Closers, createClosers } from '@berth/kit/closers';
import { defined } from '@berth/kit/defined';
import type { Logger } from '@berth/kit/log';
import { startLoop } from '@berth/kit/loop';
import type { Replace } from '@berth/kit/reload';
import { ensureFirstAdmin } from './api/auth/first-admin.ts';
import { createPasswords } from './api/auth/passwords.ts';
import type { Server } from './api/define.ts';
import { buildServer } from './api/server.ts';
import { type Config, dataFolder, readBackupConfig, type SETTINGS } from './config.ts';
import type { Limits } from './domain/deployments/facts.ts';
import type { PolicySource } from './domain/identity/policy.ts';
import type { Presence } from './domain/identity/presence.ts';
import type { SendNotice } from './domain/notifications/notifications.ts';
import type { FailoverWatch } from './domain/nodes/failover-watch.ts';
import type { Changes } from './domain/platform/changes.ts';
import type { UptimeClock } from './domain/platform/uptime.ts';
import type { ConfigSource } from './domain/routes/configuration.ts';
import { REPORT_MS } from './domain/secrets/rotation.ts';
import type { Driver } from './flow/driver.ts';
import { type Loops, startLoops } from './loops/index.ts';
import { createPlatform, type Platform, type PlatformOverrides } from './platform.ts';
import { type AllStores, type BeforeMigration, openStores } from './store/open.ts';

export type Overrides = PlatformOverrides & {
  stores?: AllStores;
  /** If false, no loop runs, and only the test's own calls change state. */
  loops?: boolean;
};

export type App = {
  server: Server;
  stores: AllStores;
  changes: Changes;
  driver: Driver;
  failover: FailoverWatch;
  source: ConfigSource;
  policy: PolicySource;
  presence: Presence;
  uptime: UptimeClock;
  limits: Limits;
  sendNotice: SendNotice;
  /** Secrets that change while the control plane runs. Call `replaced` after each reload. */
  secrets: { replace: Replace<typeof SETTINGS>; replaced(): Promise<void> };
  /** Listens and starts the loops; returns the address. */
  listen(): Promise<string>;
  /** Ends held requests, waits for running requests, stops the loops, closes the database. */
  close(): Promise<void>;
};

/** Interval at which the control planes of one database compare their JWT secrets. */
const SECRET_CHECK_MS = 30_000;
/** Time limit for running requests during shutdown; then their connections are closed. */
const DRAIN_MS = 10_000;

export async function createApp(config: Config, overrides: Overrides): Promise<App> {
  const { log, now = Date.now } = overrides;
  const closers = createClosers(log);
  const stores = overrides.stores ?? (await openDatabase(config, log, now));
  closers.add('database', () => stores.close());
  try {
    const parts = await createPlatform(config, overrides, stores, closers);
    await addAdmins(config, { ...parts, users: stores.users });
    const platform = { ...stores, ...parts };
    let loops: Loops | null = null;
    const server = await buildServer({
      ...platform,
      stores,
      loops: () => loops?.status() ?? [],
    });
    closers.add('loops', () => loops?.stop());
    closers.add('server', () => closeServer(server));
    for (const { text } of parts.settings.notes) log.warn(text);
    const { changes, driver, failover, source, policy, presence, uptime, limits, sendNotice } =
      parts;
    return {
      server,
      stores,
      changes,
      driver,
      failover,
      source,
      policy,
      presence,
      uptime,
      limits,
      sendNotice,
      secrets: secretsOf(parts),
      async listen() {
        const address = await server.listen({ host: config.LISTEN.host, port: config.LISTEN.port });
        if (overrides.loops === false) return address;
        loops = startLoops(platform);
        startSecretLoops(parts, closers);
        return address;
      },
      close: () => closers.close(),
    };
  } catch (error) {
    await closers.close();
    throw error;
  }
}

const openDatabase = (config: Config, log: Logger, now: () => number): Promise<AllStores> =>
  openStores({
    databaseUrl: config.DATABASE_URL,
    log,
    now,
    domainQuarantineMs: config.DOMAIN_QUARANTINE,
    ...defined({ before: snapshotBefore(config, log) }),
  });

/**
 * Returns the function that takes a snapshot before a migration. A database in memory needs none.
 */
function snapshotBefore(config: Config, log: Logger): BeforeMigration | undefined {
  if (config.DATABASE_URL === 'sqlite::memory:') return undefined;
  return async () => {
    // Import the module only now: its libraries would slow down every other start.
    const { takeSnapshot } = await import('./backup/snapshot.ts');
    return takeSnapshot(readBackupConfig(config.backupEnv), config.UPGRADE_SNAPSHOT, log);
  };
}

/** Creates the first admin if there is no user, and makes the users of ADMIN_EMAILS admins. */
async function addAdmins(
  config: Config,
  { users, settings, now, log }: Platform & { users: AllStores['users'] },
): Promise<void> {
  const firstAdmin = {
    email: config.ADMIN_EMAILS?.[0] ?? `admin@${config.BASE_DOMAIN}`,
    password: config.ADMIN_PASSWORD ?? null,
    passwordFile: resolve(join(dataFolder(config), 'admin-password')),
  };
  await ensureFirstAdmin(users, createPasswords(settings.passwordCost), firstAdmin, now(), log);
  await users.makeAdmins(settings.adminEmails);
}

const secretsOf = ({
  secretsInUse,
  secretWatch,
  secretUse,
  isShared,
  vault,
}: Platform): App['secrets'] => ({
  replace: {
    AGENT_SECRET: (agent) => secretsInUse.change({ agent }),
    GATEWAY_SECRET: (gateway) => secretsInUse.change({ gateway }),
    JWT_SECRET: (jwt) => secretsInUse.change({ jwt }),
    REGISTRY_PASSWORD: (registryPassword) => secretsInUse.change({ registryPassword }),
    SECRETS_KEY: (keys) => vault.use(keys),
  },
  async replaced() {
    await vault.rewrap();
    if (isShared) await secretWatch.look();
    await secretUse.report();
  },
});

/** Starts loops that are not in LOOPS, because /readyz shows their problems through other parts. */
function startSecretLoops(
  { isShared, secretWatch, secretUse, log }: Platform,
  closers: Closers,
): void {
  const start = (name: string, periodMs: number, run: () => Promise<void>): void => {
    const loop = startLoop({ name, periodMs, run }, log);
    closers.add(name, () => loop.stop());
  };
  if (isShared) start('secret-watch', SECRET_CHECK_MS, secretWatch.look);
  start('secret-use', REPORT_MS, secretUse.report);
}

async function closeServer(server: Server): Promise<void> {
  const late = setTimeout(() => server.server.closeAllConnections(), DRAIN_MS);
  try {
    await server.close();
  } finally {
    clearTimeout(late);
  }
}
