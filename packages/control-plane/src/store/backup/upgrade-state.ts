/**
 * Reads from a database of any version what `berth upgrade --check` reports: migrations, nodes,
 * open deployments, and the control planes that use it.
 */
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import type { DatabaseState, SchemaStep } from '@berth/wire/schema-report';
import { type Kysely, sql } from 'kysely';
import { POSTGRES, SQLITE } from '../engine/capabilities.ts';
import { isRequired, presentIn } from '../engine/migrate.ts';
import { allMigrations } from '../engine/migrations/all.ts';
import { isSqlite, openPlain, pathIn } from './plain.ts';

/** Returns the migration steps of this version, oldest first. */
export function knownSteps(engine: 'sqlite' | 'postgres'): SchemaStep[] {
  const steps = allMigrations(engine === 'sqlite' ? SQLITE : POSTGRES);
  return Object.keys(steps)
    .sort()
    .map((name) => ({ name, needed: isRequired(name, steps[name]) }));
}

const OPEN = ['pending', 'building', 'built', 'deploying'];

export async function stateOf(databaseUrl: string): Promise<DatabaseState> {
  const { engine, name, db } = openPlain(databaseUrl);
  try {
    const tables = (await db.introspection.getTables()).map((table) => table.name);
    const { applied, needed } = await presentIn(db);
    type Row = {
      hostname: string;
      role: string;
      agent_version?: string | null;
      last_seen_at: number;
    };
    const nodes = tables.includes('nodes')
      ? (await sql<Row>`select * from nodes order by hostname`.execute(db)).rows
      : [];
    const open = tables.includes('deployments')
      ? (
          await sql<{
            n: number;
          }>`select count(*) as n from deployments where status in (${sql.join(OPEN)})`.execute(db)
        ).rows
      : [];
    return {
      engine,
      database: name,
      applied,
      needed,
      nodes: nodes.map(({ hostname, role, agent_version = null, last_seen_at }) => ({
        name: hostname,
        role,
        agent_version,
        last_seen_at,
      })),
      open_deployments: open[0]?.n ?? 0,
      control_planes: isSqlite(databaseUrl)
        ? holderOf(pathIn(databaseUrl))
        : await connectionsTo(db),
    };
  } finally {
    await db.destroy();
  }
}

/** A control plane that was killed leaves this file behind, so check the process. */
function holderOf(path: string): string[] {
  try {
    const { pid, host } = JSON.parse(readFileSync(`${resolve(path)}.lock.json`, 'utf8')) as {
      pid: number;
      host: string;
    };
    readFileSync(`/proc/${pid}/stat`);
    return [`process ${pid} on ${host}`];
  } catch {
    return [];
  }
}

async function connectionsTo(db: Kysely<unknown>): Promise<string[]> {
  const { rows } = await sql<{ address: string; n: number }>`
    select coalesce(host(client_addr), 'this machine') as address, count(*) as n
    from pg_stat_activity
    where datname = current_database() and application_name = 'berth' and pid <> pg_backend_pid()
    group by 1 order by 1`.execute(db);
  return rows.map(({ address, n }) => `${address} (${n} connections)`);
}
