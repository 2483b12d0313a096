/** Opens the database and hands out the stores; the only file of store/ that app.ts names. */
import type { Stores } from '../domain/stores.ts';
import { openDatabase, type StoreLog } from './database.ts';
import { createDeploymentStore } from './deployments.ts';
import { createFlowStore } from './flow.ts';
import { createLogStore } from './logs.ts';
import { createMetaStore } from './meta.ts';
import { createNodeStore } from './nodes.ts';
import { createProjectStore } from './projects.ts';
import { createRouteStore } from './routes.ts';
import { createTaskStore } from './tasks.ts';
import { createUserStore } from './users.ts';

export type OpenStores = {
  /** `sqlite:path` (from the working directory), `sqlite::memory:` for tests. */
  databaseUrl: string;
  log: StoreLog;
  now?: () => number;
};

/** Throws StoreError, whose message is for whoever starts the control plane. */
export async function openStores({ databaseUrl, log, now = Date.now }: OpenStores): Promise<Stores> {
  const db = await openDatabase(databaseUrl, log, now);
  return {
    projects: createProjectStore(db),
    deployments: createDeploymentStore(db),
    flow: createFlowStore(db),
    tasks: createTaskStore(db),
    logs: createLogStore(db),
    nodes: createNodeStore(db, now),
    routes: createRouteStore(db),
    users: createUserStore(db),
    meta: createMetaStore(db),
    async ping() {
      await db.kysely.selectFrom('meta').select('key').limit(1).execute();
    },
    close: () => db.close(),
  };
}
