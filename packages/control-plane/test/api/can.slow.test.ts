/**
 * Each row of wire/can.ts equals the answer of the server: for each role, and for each condition of
 * a thing.
 */
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  type Action,
  ACTIONS,
  type DatasetCondition,
  type ProjectCondition,
  whyNotAction,
} from '@berth/wire/can';
import { type DeploymentState, type Role, ROLES } from '@berth/wire/vocabulary';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { emptyPlan } from '../../src/domain/deployments/plan.ts';
import { createWorld, type World } from './deployed.ts';
import {
  type Api,
  createApi,
  createProject,
  deploy,
  type Input,
  register,
  tick,
} from './harness.ts';

type On<S> = { [A in Action]: (typeof ACTIONS)[A]['on'] extends S ? A : never }[Action];
const actionsOn = <S extends string>(subject: S): On<S>[] =>
  (Object.keys(ACTIONS) as Action[]).filter((a) => ACTIONS[a].on === subject) as On<S>[];

let share: string;
let api: Api;
let world: World;
let made = 0;
beforeAll(async () => {
  share = await mkdtemp(join(tmpdir(), 'can-share-'));
  api = await createApi({ env: { DATASET_NFS_BASE_PATH: share } });
  world = await createWorld(api);
});
afterAll(async () => {
  await api.close();
  await rm(share, { recursive: true });
});

/** Calls the route of the action. Returns null if it is possible, else the status. */
async function refusal(action: Action, input: Input): Promise<number | null> {
  const { status, text } = await api.call(ACTIONS[action].route, input);
  expect(status, text).toBeLessThan(500);
  // Everything but the role and the condition is right.
  expect([400, 404, 412, 422], text).not.toContain(status);
  return status < 300 ? null : status;
}

const BODIES: Partial<Record<Action, () => unknown>> = {
  deploy: () => ({}),
  create_project: () => ({
    name: `c${(made += 1)}`,
    git_url: 'https://git.example.com/x.git',
    domain_prefix: `c${made}`,
  }),
  look_at_repository: () => ({ git_url: 'https://git.example.com/x.git' }),
  scale: () => ({ web: 2 }),
  edit_project: () => ({ branch: 'next' }),
  edit_members: () => ({ members: [] }),
  set_env: () => ({ value: '2' }),
  set_secret: () => ({ value: '2' }),
  set_hook: () => ({ forge: 'github' }),
  set_git_token: () => ({ token: 'abc' }),
  create_user: () => ({ email: `u${(made += 1)}@example.com`, role: 'viewer' }),
  create_dataset: async () => {
    const name = `d${(made += 1)}`;
    await mkdir(join(share, name));
    return { name, nfs_path: name };
  },
  edit_dataset: () => ({ name: `d${(made += 1)}` }),
  accept_loss: () => ({ accept_loss: true }),
  label_node: () => ({ labels: { zone: 'a' } }),
};
/** A container on the node that only a person can remove. */
async function leave(node_id: string): Promise<void> {
  const project_id = await createProject(api, {
    name: `l${(made += 1)}`,
    domain_prefix: `l${made}`,
  });
  const { project } = await api.stores.flow.facts(project_id);
  const put = {
    node_id,
    container: 'svc-left',
    project_id,
    project: 'left',
    deployment_id: 'd',
    placed_at: 1,
    labelled: false,
    confirmed_at: null,
  };
  await api.stores.flow.commit({ ...emptyPlan(project, Date.now(), 0), unmanaged: [{ put }] });
}
const NAMES: Partial<Record<Action, string>> = {
  set_env: 'A',
  delete_env: 'A',
  set_secret: 'S',
  delete_secret: 'S',
};
async function inputOf(action: Action, id: string | null, as: Role): Promise<Input> {
  const name = NAMES[action];
  const container = action === 'confirm_removed' ? { container: 'svc-left' } : {};
  if (action === 'confirm_removed' && id !== null) await leave(id);
  const body = await BODIES[action]?.();
  return {
    ...(id === null
      ? {}
      : { params: { id, ...container, ...(name === undefined ? {} : { name }) } }),
    ...(body === undefined ? {} : { body }),
    as,
  };
}

async function project(isLive: boolean): Promise<string> {
  const name = `p${(made += 1)}`;
  const id = await createProject(api, {
    name,
    domain_prefix: name,
    git_url: 'https://git.example.com/x.git',
    env: { A: '1' },
  });
  const params = { id };
  // Before its keys and secrets, because the builder of this world has no capabilities.
  if (isLive) await world.live(id);
  await api.call('putSecret', { params: { id, name: 'S' }, body: { value: '1' } });
  await api.call('putHook', { params, body: { forge: 'github' } });
  await api.call('createDeployKey', { params });
  await api.call('putGitToken', { params, body: { token: 'abc' } });
  return id;
}

describe('a project', () => {
  const CONDITIONS: Record<string, ProjectCondition> = {
    'without a version': { deleting: false, stopped: false, running: false },
    'that runs': { deleting: false, stopped: false, running: true },
    'that is stopped': { deleting: false, stopped: true, running: true },
    'that is being deleted': { deleting: true, stopped: false, running: false },
  };
  const ids = new Map<string, string>();
  /** Only these depend on a running version. */
  const LIFE: readonly Action[] = ['deploy', 'restart', 'stop', 'start', 'delete_project'];
  const actionsIn = (condition: string): On<'project'>[] =>
    actionsOn('project').filter(
      (action) => CONDITIONS[condition]?.running !== true || LIFE.includes(action),
    );
  beforeAll(async () => {
    // All are live before the first one is stopped, because the node then has other tasks.
    for (const [condition, { running }] of Object.entries(CONDITIONS))
      for (const action of actionsIn(condition))
        ids.set(`${action} ${condition}`, await project(running));
    for (const [condition, { stopped, deleting }] of Object.entries(CONDITIONS))
      for (const action of actionsIn(condition)) {
        const params = { id: ids.get(`${action} ${condition}`) ?? '' };
        if (stopped) await api.call('stopProject', { params });
        if (deleting) await api.call('deleteProject', { params });
      }
  }, 60_000);

  describe.each(Object.keys(CONDITIONS))('%s', (condition) => {
    it.each(actionsIn(condition))('%s', async (action) => {
      const why = whyNotAction(action, 'admin', CONDITIONS[condition] as ProjectCondition);
      const input = await inputOf(action, ids.get(`${action} ${condition}`) ?? '', 'admin');
      expect(await refusal(action, input), String(why)).toBe(why === null ? null : 409);
    });
  });
});

let shared: string | null = null;
describe.each(ROLES)('a %s', (role) => {
  it.each(Object.keys(ACTIONS) as Action[])('%s', async (action) => {
    const { on } = ACTIONS[action];
    const subjects = {
      project: { deleting: false, stopped: action === 'start', running: true },
      deployment: action === 'cancel' ? 'pending' : 'running',
      dataset: { deleting: false, status: 'ok' },
      node: { deleting: false },
      none: null,
    } as const;
    const why = whyNotAction(action, role, subjects[on] as never);
    const answer = async (): Promise<number | null> => {
      if (on === 'none') return refusal(action, await inputOf(action, null, role));
      if (on === 'node')
        return refusal(
          action,
          await inputOf(
            action,
            await register(api, { hostname: `n${(made += 1)}`, role: 'deploy' }),
            role,
          ),
        );
      if (on === 'dataset') return refusal(action, await inputOf(action, await dataset(), role));
      // A role that is not enough changes nothing, so one project does for all these rows.
      const id = why === null ? await project(false) : (shared ??= await project(false));
      if (action === 'cancel')
        return refusal(action, { params: { id: await deploy(api, id) }, as: role });
      // These need a version that runs. A role that is not enough is refused before.
      if (why === null && ['rollback_to', 'restart', 'start'].includes(action)) return null;
      return refusal(action, {
        ...(await inputOf(action, id, role)),
        ...(action === 'rollback_to' ? { body: {} } : {}),
      });
    };
    expect(await answer(), String(why)).toBe(why === null ? null : 403);
  });
});

async function dataset(): Promise<string> {
  const name = `d${(made += 1)}`;
  await mkdir(join(share, name));
  return (await api.stores.datasets.create({ name, nfs_path: name }, Date.now())).id;
}

describe('a dataset that is being deleted', () => {
  it.each(actionsOn('dataset'))('%s', async (action) => {
    const id = await dataset();
    await api.call('deleteDataset', { params: { id } });
    const why = whyNotAction(action, 'admin', {
      deleting: true,
      status: 'new',
    } satisfies DatasetCondition);
    expect(await refusal(action, await inputOf(action, id, 'admin')), String(why)).toBe(
      why === null ? null : 409,
    );
  });
});

describe('a node that is being deleted', () => {
  it.each(actionsOn('node'))('%s', async (action) => {
    const id = await register(api, { hostname: `n${(made += 1)}`, role: 'deploy' });
    await api.call('deleteNode', { params: { id } });
    const why = whyNotAction(action, 'admin', { deleting: true });
    expect(await refusal(action, await inputOf(action, id, 'admin')), String(why)).toBe(
      why === null ? null : 409,
    );
  });
});

describe('a deployment', () => {
  const STATES: { [S in Exclude<DeploymentState, 'built'>]: (other: Api) => Promise<string> } = {
    pending: async (other) => deploy(other, await createProject(other)),
    building: async (other) => {
      const id = await deploy(other, await createProject(other));
      await tick(other, id);
      return id;
    },
    deploying: async (other) => {
      const at = await createWorld(other);
      const id = await deploy(other, await createProject(other));
      await tick(other, id);
      await at.built();
      await tick(other, id);
      return id;
    },
    running: async (other) => (await createWorld(other)).live(await createProject(other)),
    retired: async (other) => {
      const [at, id] = [await createWorld(other), await createProject(other)];
      const first = await at.live(id);
      await at.live(id);
      return first;
    },
    failed: async (other) => {
      const [at, id] = [await createWorld(other), await deploy(other, await createProject(other))];
      await tick(other, id);
      await at.work(at.builder, {
        status: 'failed',
        result: { error: { code: 'build_step_failed', message: 'no' } },
      });
      return id;
    },
    cancelled: async (other) => {
      const id = await deploy(other, await createProject(other));
      await other.call('cancelDeployment', { params: { id } });
      return id;
    },
    superseded: async (other) => {
      const id = await createProject(other);
      const first = await deploy(other, id);
      await deploy(other, id);
      return first;
    },
  };

  it.each(Object.keys(STATES) as (keyof typeof STATES)[])(
    'that is %s can be cancelled or rolled back to as can.ts says',
    async (state) => {
      const other = await createApi();
      try {
        if (state === 'building') await createWorld(other);
        const id = await STATES[state](other);
        const { json } = await other.call('getDeployment', { params: { id } });
        expect(json['status']).toBe(state);
        const reasons = (['cancel', 'rollback_to'] as const).map(
          (action) => [action, whyNotAction(action, 'admin', state)] as const,
        );
        // The action that is refused comes first, because it changes nothing.
        for (const [action, why] of reasons.toSorted(
          (x, y) => Number(x[1] === null) - Number(y[1] === null),
        )) {
          const { status } =
            action === 'cancel'
              ? await other.call('cancelDeployment', { params: { id } })
              : await other.call('rollback', {
                  params: { id: String(json['project_id']) },
                  body: { deployment_id: id },
                });
          expect([action, status < 300 ? null : status], String(why)).toEqual([
            action,
            why === null ? null : 409,
          ]);
        }
      } finally {
        await other.close();
      }
    },
  );
});
