/**
 * The settings of deployments that retention reduced to their record. Most of a record is its copy
 * of the project's settings, so a project stores equal copies once, by their digest. The copies are
 * deleted with their project.
 */
import { createHash } from 'node:crypto';
import { sql } from 'kysely';
import type { DeploymentRecord, ProjectSettings } from '../domain/platform/records.ts';
import type { Db, NewRow, Row, Tx } from './engine/tables.ts';
import { deploymentOf } from './rows/deployment.ts';

type Columns = Pick<NewRow<'deployments'>, 'settings' | 'settings_digest'>;

/** Stores these settings and returns the columns that refer to them. */
export async function keepSettings(
  tx: Tx,
  projectId: string,
  settings: ProjectSettings,
): Promise<Columns> {
  return {
    settings: JSON.stringify(rest(settings)),
    settings_digest: await keep(tx, projectId, settings),
  };
}

/** Stores the settings and returns their digest. */
async function keep(tx: Tx, projectId: string, settings: ProjectSettings): Promise<string> {
  const text = JSON.stringify(settings);
  const digest = createHash('sha256').update(text).digest('base64url');
  await tx
    .insertInto('kept_settings')
    .values({ project_id: projectId, digest, settings: text })
    .onConflict((oc) => oc.doNothing())
    .execute();
  return digest;
}

const CHANGED_AT_ONCE = 100;

/**
 * Removes a variable. The changed settings get a new digest: with the old one, a later deployment
 * with the variable would find settings without it. The old digest would also confirm a guessed
 * value.
 */
export async function removeKeptVariable(tx: Tx, projectId: string, name: string): Promise<void> {
  for (let after = ''; ; ) {
    const rows = await tx
      .selectFrom('kept_settings')
      .select(['digest', 'settings'])
      .where('project_id', '=', projectId)
      .where('digest', '>', after)
      .where('settings', 'like', `%"${name}"%`)
      .orderBy('digest')
      .limit(CHANGED_AT_ONCE)
      .execute();
    const digests = new Map<string, string>();
    for (const row of rows) {
      const { env, ...settings } = JSON.parse(row.settings) as ProjectSettings;
      const { [name]: value, ...others } = env;
      if (value !== undefined && Object.hasOwn(env, name))
        digests.set(row.digest, await keep(tx, projectId, { ...settings, env: others }));
    }
    if (digests.size > 0) {
      const old = [...digests.keys()];
      const digest = sql<string>`case settings_digest ${sql.join(
        [...digests].map(([from, to]) => sql`when ${from} then ${to}`),
        sql` `,
      )} end`;
      await tx
        .updateTable('deployments')
        .set({ settings_digest: digest })
        .where('project_id', '=', projectId)
        .where('settings_digest', 'in', old)
        .execute();
      await tx
        .deleteFrom('kept_settings')
        .where('project_id', '=', projectId)
        .where('digest', 'in', old)
        .execute();
    }
    const last = rows.at(-1);
    if (last === undefined || rows.length < CHANGED_AT_ONCE) return;
    after = last.digest;
  }
}

/**
 * Returns the settings that stay in the row for the previous version, which does not know this
 * table. With them, that version can show the record and remove its container. The row names a
 * dataset that does not exist, so that version refuses a rollback to the record (`no_release`).
 */
const rest = ({ domain_prefix, drain_seconds, stop_grace_seconds }: ProjectSettings) => ({
  domain_prefix,
  drain_seconds,
  stop_grace_seconds,
  env: {},
  datasets: [{ dataset_id: 'kept-by-a-newer-version-of-Berth', mode: 'dependency' }],
});

/** Returns the records of these rows in the same order, with their stored settings. */
export async function deploymentsOf(
  db: Db,
  rows: readonly Row<'deployments'>[],
): Promise<DeploymentRecord[]> {
  const digests = [...new Set(rows.flatMap((row) => row.settings_digest ?? []))];
  if (digests.length === 0) return rows.map(deploymentOf);
  const stored = await db
    .selectFrom('kept_settings')
    .selectAll()
    .where('digest', 'in', digests)
    .execute();
  const settingsByKey = new Map(
    stored.map((row) => [`${row.project_id} ${row.digest}`, row.settings]),
  );
  return rows.flatMap((row) => {
    if (row.settings_digest === null) return [deploymentOf(row)];
    const settings = settingsByKey.get(`${row.project_id} ${row.settings_digest}`);
    // Skips a deployment whose project was deleted between the two queries.
    return settings === undefined ? [] : [deploymentOf({ ...row, settings })];
  });
}
