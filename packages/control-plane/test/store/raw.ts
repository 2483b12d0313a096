/** Databases of earlier versions of Berth: rows are written without the stores. */
import { Kysely } from 'kysely';
import { type Capabilities, POSTGRES, SQLITE } from '../../src/store/engine/capabilities.ts';
import { migrate } from '../../src/store/engine/migrate.ts';
import { allMigrations } from '../../src/store/engine/migrations/all.ts';
import { openPostgres } from '../../src/store/engine/postgres.ts';
import { openSqlite } from '../../src/store/engine/sqlite.ts';
import { NOW } from './fixtures.ts';

export type Raw = Kysely<Record<string, Record<string, unknown>>>;

/** Inserts rows without the stores. */
export async function raw(
  url: string,
  run: (db: Raw, capabilities: Capabilities) => Promise<void>,
): Promise<void> {
  const isFile = url.startsWith('sqlite:');
  const engine = isFile
    ? openSqlite(url.slice('sqlite:'.length), NOW)
    : { dialect: openPostgres(url).migrating, release: () => {} };
  const db: Raw = new Kysely({ dialect: engine.dialect });
  try {
    await run(db, isFile ? SQLITE : POSTGRES);
  } finally {
    await db.destroy();
    engine.release();
  }
}

/** Runs the migrations before this number. */
export async function migrateBefore(
  number: string,
  db: Raw,
  capabilities: Capabilities,
): Promise<void> {
  const old = Object.fromEntries(
    Object.entries(allMigrations(capabilities)).filter(([name]) => name < number),
  );
  await migrate(db as Kysely<unknown>, old);
}

export const PROJECT_ROW = {
  id: 'p1',
  name: 'shop',
  git_url: 'https://git.example/shop.git',
  branch: 'main',
  dockerfile_path: 'Dockerfile',
  domain_prefix: 'shop',
  container_port: 8080,
  auth_required: 0,
  env: '{}',
  datasets: '[]',
  drain_seconds: 5,
  stop_grace_seconds: 10,
  replace: 'rolling',
  flow_version: 7,
  last_generation: 1,
  created_at: NOW,
  updated_at: NOW,
};
export const DEPLOYMENT_ROW = {
  id: 'd1',
  project_id: 'p1',
  generation: 1,
  status: 'running',
  settings: '{"domain_prefix":"shop","datasets":[]}',
  domain_prefix: 'shop',
  losses: '[]',
  created_at: NOW,
  state_since: NOW,
};
