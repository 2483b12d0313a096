/** berth.toml through the API, with a builder that sends it before and after the build. */
import { beforeEach, describe, expect, it } from 'vitest';
import { CAN_CONFIG_FILE } from '@berth/wire/task';
import type { AllStores } from '../../src/store/open.ts';
import { createWorld, type World } from './deployed.ts';
import {
  type Api,
  createApi,
  createProject,
  deploy,
  register,
  rulesOf,
  sha,
  tick,
} from './harness.ts';

let api: Api;
let world: World;
const CAN = {
  agent_version: '0.2.0',
  capabilities: [CAN_CONFIG_FILE, 'build_settings', 'secrets'],
};
const COMMIT = sha('c');

beforeEach(async () => {
  api = await createApi();
  world = await createWorld(api);
  await register(api, CAN);
  return () => api.close();
});

const of = (id: string) => ({ params: { id } });
const file = (text: string) => ({ file: 'berth.toml', text });
const project = async (id: string) =>
  (await api.call('getProject', { ...of(id), as: 'developer' })).json;
const patch = (id: string, body: unknown) => api.call('patchProject', { ...of(id), body });

/** Claims the build task and sends the file before the build. */
async function check(text: string) {
  const query = { node_id: world.builder };
  const [task] = (await api.call('agentTasks', { query })).json as unknown as { id: string }[];
  const params = { id: task?.id ?? '' };
  const claim = await api.call('agentStart', { params });
  const headers = { 'x-lease-token': String(claim.json['lease_token']) };
  const answer = await api.call('agentConfigFile', { params, headers, body: file(text) });
  const complete = (body: Record<string, unknown>) =>
    api.call('agentComplete', { params, headers, body });
  return { params, headers, answer, complete };
}

/** Deploys the project with this file until it is live. Returns the payload of the deploy task. */
async function live(id: string, text: string | null) {
  const deployment = await deploy(api, id);
  await tick(api, deployment);
  await world.built({
    commit: COMMIT,
    ...(text === null ? {} : { config_file: file(text) }),
  });
  return { deployment, payload: await world.started(deployment) };
}

const TEXT = `health_path = "/healthz"
memory_bytes = 268435456

[env]
LOG_LEVEL = "info"
`;
const KEYS = ['health_path', 'memory_bytes', 'env.LOG_LEVEL'];
const CONFIG = { file: 'berth.toml', commit: COMMIT, keys: KEYS };

describe('a file in the repository', () => {
  it('has processes, which a person scales; the list is that of the file', async () => {
    const id = await createProject(api);
    await live(id, '[processes.worker]\ncommand = ["w"]\ncount = 0');
    const scale = (body: unknown) => api.call('scaleProject', { ...of(id), body });
    const worker = { name: 'worker', command: ['w'], count: 0 };
    const web = { name: 'web', count: 1 };
    expect((await project(id))['processes']).toEqual([web, worker]);
    expect((await scale({ worker: 2 })).json['processes']).toEqual([web, { ...worker, count: 2 }]);
    expect((await project(id))['processes']).toEqual([web, { ...worker, count: 2 }]);
    expect(rulesOf(await scale({ other: 1 }))).toEqual(['other:exists']);
    // Logs and metrics know the processes of the file too.
    for (const route of ['projectLogs', 'projectMetrics'] as const) {
      const read = (process: string) => api.call(route, { ...of(id), query: { process } });
      expect((await read('worker')).status).toBe(200);
      expect(rulesOf(await read('other'))).toEqual(['process:process']);
    }
    const listed = await patch(id, { processes: [web] });
    expect([listed.status, rulesOf(listed)]).toEqual([409, ['processes:set_by_file']]);
    const counts = await patch(id, { processes: [web, { ...worker, count: 3 }] });
    expect(counts.json['processes']).toEqual([web, { ...worker, count: 3 }]);
  });

  it('has jobs, which hold from the switch on, and which only the file changes', async () => {
    const id = await createProject(api);
    const jobs = async () => {
      const { items } = (await api.call('listJobs', of(id))).json as unknown as {
        items: { name: string; schedule: string; next_runs: string[]; config: unknown }[];
      };
      return items;
    };
    const short = async () => (await jobs()).map((job) => [job.name, job.schedule, job.config]);
    const report = (schedule: string) =>
      `[jobs.report]\nschedule = "${schedule}"\ncommand = ["node", "report.js"]\n`;
    const config = { file: 'berth.toml', commit: COMMIT };
    const made = { name: 'report', schedule: '@hourly', command: ['old'] };
    await api.call('createJob', { ...of(id), body: made });
    await api.call('createJob', { ...of(id), body: { ...made, name: 'mine' } });

    // A file of a version that fails changes nothing.
    const failed = await deploy(api, id);
    await tick(api, failed);
    await world.built({ commit: COMMIT, config_file: file(report('61 * * * *')) });
    expect((await api.call('getDeployment', of(failed))).json).toMatchObject({
      status: 'failed',
      error: { code: 'config_invalid' },
    });
    expect(await short()).toEqual([
      ['mine', '@hourly', null],
      ['report', '@hourly', null],
    ]);

    const { deployment } = await live(id, report('0 6 * * 1'));
    expect(await short()).toEqual([
      ['mine', '@hourly', null],
      ['report', '0 6 * * 1', config],
    ]);
    expect((await jobs())[1]?.next_runs).toHaveLength(3);
    expect(await project(id)).toMatchObject({ config: { keys: ['jobs.report'] } });
    const params = { id, name: 'report' };
    const changed = await api.call('patchJob', { params, body: { enabled: false } });
    expect([changed.status, rulesOf(changed)]).toEqual([409, ['name:set_by_file']]);
    expect(changed.text).toContain('comes from berth.toml at');
    expect((await api.call('deleteJob', { params })).status).toBe(409);
    // A request that read the job before its version was live.
    const store = api.stores.jobs;
    const { next_at, ...read } = await store.get(id, 'report');
    const late = { ...read, next_at, schedule: '@daily' };
    const isOfFile = { code: 'set_by_file' };
    await expect(store.change(id, 'report', late)).rejects.toMatchObject(isOfFile);
    await expect(store.delete(id, 'report')).rejects.toMatchObject(isOfFile);
    expect((await short())[1]).toEqual(['report', '0 6 * * 1', config]);
    expect((await api.call('runJob', { params })).status).toBe(201);

    // A version without the table deletes the job; its runs stay. A rollback brings it back.
    await live(id, '[jobs.other]\nschedule = "@daily"\ncommand = ["x"]\nenabled = false');
    expect(await short()).toEqual([
      ['mine', '@hourly', null],
      ['other', '@daily', config],
    ]);
    expect((await jobs())[1]?.next_runs).toEqual([]);
    expect((await api.call('projectRuns', of(id))).json['items']).toHaveLength(1);
    const back = await api.call('rollback', { ...of(id), body: { deployment_id: deployment } });
    await world.deployedAgain(String(back.json['id']));
    expect((await short()).map(([name]) => name)).toEqual(['mine', 'report']);
    await live(id, null);
    expect((await short()).map(([name]) => name)).toEqual(['mine']);
  });

  it('sets the settings of its release, and the project shows where they come from', async () => {
    const id = await createProject(api, { env: { LOG_LEVEL: 'debug', REGION: 'eu' } });
    expect(await project(id)).toMatchObject({ config: null, health_path: null });
    const { deployment, payload } = await live(id, TEXT);
    expect(payload).toMatchObject({
      health_path: '/healthz',
      memory_bytes: 268_435_456,
      env: { LOG_LEVEL: 'info', REGION: 'eu' },
    });
    expect((await api.call('getDeployment', of(deployment))).json).toMatchObject({
      config: CONFIG,
    });
    expect(await project(id)).toMatchObject({
      config: CONFIG,
      health_path: '/healthz',
      memory_bytes: 268_435_456,
      env: { LOG_LEVEL: 'info', REGION: 'eu' },
    });
    const listed = (await api.call('listProjects', { as: 'developer' })).json as {
      items?: unknown[];
    };
    expect(listed.items?.[0]).toMatchObject({ config: CONFIG });
    // Without the file, the settings of the project hold again.
    const without = await live(id, null);
    expect(without.payload).toMatchObject({ health_path: null, env: { LOG_LEVEL: 'debug' } });
    expect(await project(id)).toMatchObject({ config: null, env: { LOG_LEVEL: 'debug' } });
  });

  it('stays of a release that is deployed again, and of a stopped project', async () => {
    const id = await createProject(api);
    const first = await live(id, TEXT);
    await live(id, null);
    await patch(id, { health_path: '/other' });
    const back = await api.call('rollback', {
      ...of(id),
      body: { deployment_id: first.deployment },
    });
    expect(back.status, back.text).toBe(201);
    const payload = await world.deployedAgain(String(back.json['id']));
    expect(payload).toMatchObject({ health_path: '/healthz', env: { LOG_LEVEL: 'info' } });
    expect(await project(id)).toMatchObject({ config: CONFIG, health_path: '/healthz' });
    await api.call('stopProject', of(id));
    expect(await project(id)).toMatchObject({ config: CONFIG, health_path: '/healthz' });
  });
});

describe('a change of what the file sets', () => {
  it('is refused with the name of the file, and other changes are stored', async () => {
    const id = await createProject(api);
    await live(id, TEXT);
    for (const [body, fields] of [
      [{ health_path: '/x', cpus: 1 }, ['health_path']],
      [{ env: { LOG_LEVEL: 'x' }, memory_bytes: null }, ['memory_bytes', 'env.LOG_LEVEL']],
      [{ env: { LOG_LEVEL: null } }, ['env.LOG_LEVEL']],
    ] as const) {
      const reply = await patch(id, body);
      expect([reply.status, reply.json['code']], reply.text).toEqual([409, 'set_by_file']);
      expect(rulesOf(reply).sort()).toEqual(fields.map((name) => `${name}:set_by_file`).sort());
      expect(reply.text).toContain(`comes from berth.toml at ${COMMIT.slice(0, 7)}`);
    }
    const one = { params: { id, name: 'LOG_LEVEL' } };
    expect((await api.call('putEnv', { ...one, body: { value: 'x' } })).status).toBe(409);
    expect((await patch(id, { health_path: '/healthz', cpus: 1 })).status).toBe(200);
    expect((await patch(id, { env: { LOG_LEVEL: 'info', REGION: 'eu' } })).status).toBe(200);
    await live(id, null);
    expect((await patch(id, { health_path: '/x' })).status).toBe(200);
  });

  it('that arrives during the build is stored, and the file wins for its release', async () => {
    const id = await createProject(api);
    const deployment = await deploy(api, id);
    await tick(api, deployment);
    expect((await patch(id, { health_path: '/late', cpus: 2 })).status).toBe(200);
    await world.built({ commit: COMMIT, config_file: file(TEXT) });
    const payload = await world.started(deployment);
    expect(payload).toMatchObject({ health_path: '/healthz', cpus: null });
    expect(await project(id)).toMatchObject({ health_path: '/healthz', cpus: 2 });
    expect((await live(id, null)).payload).toMatchObject({ health_path: '/late', cpus: 2 });
  });

  it('of the prefix keeps the file of the release', async () => {
    const id = await createProject(api);
    await live(id, TEXT);
    expect((await patch(id, { domain_prefix: 'renamed' })).status).toBe(200);
    expect(await project(id)).toMatchObject({ config: CONFIG, health_path: '/healthz' });
    expect((await live(id, TEXT)).payload).toMatchObject({
      domain_prefix: 'renamed',
      health_path: '/healthz',
    });
  });
});

describe('the check before the build', () => {
  it('answers the settings of the build, and stores nothing', async () => {
    const id = await createProject(api, { build_args: { A: '1' } });
    const deployment = await deploy(api, id);
    await tick(api, deployment);
    const { answer } = await check('[build]\nbuild_target = "web"\nbuild_args = { B = "2" }');
    expect(answer.json).toEqual({
      problem: null,
      dockerfile_path: 'Dockerfile',
      build_target: 'web',
      build_args: { A: '1', B: '2' },
    });
    expect((await api.call('getDeployment', of(deployment))).json).toMatchObject({ config: null });
  });

  it('says the line, the key and the rule, also for a secret of the same name', async () => {
    const id = await createProject(api);
    const secret = { params: { id, name: 'TOKEN' }, body: { value: 'hidden' } };
    expect((await api.call('putSecret', secret)).status).toBeLessThan(300);
    await tick(api, await deploy(api, id));
    const { answer, params, headers, complete } = await check('\n[env]\nTOKEN = "x"\n');
    expect(answer.json['problem']).toBe(
      'berth.toml line 3: env.TOKEN is also a secret of the project: delete the secret, or remove ' +
        'this line',
    );
    const wrong = await api.call('agentConfigFile', {
      params,
      headers: { 'x-lease-token': 'another' },
      body: file(''),
    });
    expect(wrong.status).toBe(409);
    const message = 'The file berth.toml of the repository is wrong: berth.toml line 3: …';
    await complete({ status: 'failed', result: { error: { code: 'config_invalid', message } } });
    expect((await api.call('agentConfigFile', { params, headers, body: file('') })).status).toBe(
      409,
    );
  });
});

it('the schema has its own address and the limits of the API', async () => {
  const { json } = await api.call('berthTomlSchema');
  expect(json).toMatchObject({
    $id: 'http://berth.localhost:8000/api/schemas/berth-toml.json',
    additionalProperties: false,
    properties: { container_port: { minimum: 1, maximum: 65_535 } },
  });
});

it('two control planes: one checks the file, the other one takes the report', async () => {
  await api.close();
  let shared: AllStores | undefined;
  const first = await createApi({ stores: (real) => (shared = real) });
  const second = await createApi({ stores: (real) => shared ?? real });
  try {
    api = first;
    world = await createWorld(first);
    await register(first, CAN);
    const id = await createProject(first);
    const deployment = await deploy(first, id);
    await tick(first, deployment);
    const { answer, params, headers } = await check(TEXT);
    expect(answer.json).toMatchObject({ problem: null });
    const body = {
      status: 'completed',
      image_tag: `registry.test:5000/${String((await project(id))['name'])}:${COMMIT}`,
      commit: COMMIT,
      config_file: file(TEXT),
    };
    const report = { params, headers, body };
    expect((await second.call('agentComplete', report)).status).toBe(200);
    // The answer was lost: the agent repeats the report at the first one.
    expect((await first.call('agentComplete', report)).status).toBe(200);
    expect((await first.call('getDeployment', of(deployment))).json).toMatchObject({
      status: 'built',
      config: CONFIG,
    });
  } finally {
    await second.close();
  }
});
