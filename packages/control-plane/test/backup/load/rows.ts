/** All rows of a database, by table and key, to compare databases of both engines. */
import { exportLines } from '../../../src/store/backup/transfer.ts';
import { openTransfer } from '../../../src/store/open.ts';

/** Table, then key of the row, then the row as JSON. */
export type Rows = ReadonlyMap<string, ReadonlyMap<string, string>>;

/**
 * Primary keys that are not the column `id`. A table that is missing here and has no `id` is
 * compared by whole rows.
 */
const KEYS: Record<string, readonly string[]> = {
  meta: ['key'],
  deleted_users: ['email'],
  kept_answers: ['user_id', 'request'],
  git_host_keys: ['host', 'fingerprint'],
  dataset_versions: ['dataset_id', 'version'],
  project_keys: ['project_id'],
  platform_keys: ['name'],
  problems: ['kind', 'subject'],
  problem_changes: ['seq'],
  notices: ['seq'],
  project_secrets: ['project_id', 'name'],
  deploy_keys: ['project_id'],
  git_tokens: ['project_id'],
  kept_settings: ['project_id', 'digest'],
  routes: ['project_id'],
  prefix_claims: ['prefix'],
  domain_claims: ['host'],
  hooks: ['project_id'],
  deliveries: ['seq'],
  events: ['seq'],
  log_heads: ['deployment_id'],
  log_lines: ['deployment_id', 'seq'],
  log_marks: ['task_id'],
  container_exits: ['deployment_id', 'run'],
  uptime: [],
};

/** A restore renews the ids of these rows (src/store/backup/as-new.ts). */
const RENEWED = new Set(['prefix_claims', 'domain_claims']);

/** Reads one consistent state, also beside a control plane that writes. */
export async function rowsOf(databaseUrl: string): Promise<Rows> {
  const db = await openTransfer(databaseUrl, 'existing');
  const tables = new Map<string, Map<string, string>>();
  try {
    for await (const text of exportLines(db, { berth: 'test', schema: db.schema, logs: true })) {
      const { table, row } = JSON.parse(text) as { table?: string; row: Record<string, unknown> };
      if (table === undefined) continue;
      if (RENEWED.has(table)) delete row['id'];
      // The engines return columns in different orders.
      const columns = Object.entries(row).sort(([a], [b]) => (a < b ? -1 : 1));
      const whole = JSON.stringify(Object.fromEntries(columns));
      const names = KEYS[table] ?? ('id' in row ? ['id'] : null);
      const rows = tables.get(table) ?? new Map<string, string>();
      tables.set(
        table,
        rows.set(names === null ? whole : JSON.stringify(names.map((name) => row[name])), whole),
      );
    }
  } finally {
    await db.close();
  }
  return tables;
}
