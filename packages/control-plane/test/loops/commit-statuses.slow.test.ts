/**
 * The outbox of commit statuses: what deployments put into it, what the loop sends, and what
 * happens when the forge does not answer.
 */
import { createLogger, silentLogger } from '@berth/kit/log';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { ForgeAnswer, ForgeRequest } from '../../src/domain/git/forge-api.ts';
import { commitStatuses, type Deps } from '../../src/loops/commit-statuses.ts';
import { createWorld, type World } from '../api/deployed.ts';
import {
  type Api,
  createApi,
  createProject,
  deploy,
  onceOnly,
  register,
  sha,
  tick,
} from '../api/harness.ts';
import type { StatusSettings } from '../../src/loops/settings.ts';

const MINUTE = 60_000;
const COMMIT = sha('c');

let api: Api;
let world: World;
let project: string;
/** Requests that the forge received. */
let received: {
  url: string;
  state: string;
  description: string;
  context: string;
  target_url: string;
  authorization: string;
}[];
let answer: (request: ForgeRequest) => ForgeAnswer;
beforeEach(async () => {
  api = await createApi();
  world = await createWorld(api);
  // It can use the git token.
  await register(api, { capabilities: ['git_access'] });
  project = await createProject(api);
  received = [];
  answer = () => ({ status: 201, text: '', retryAfterMs: 0 });
  await api.call('putHook', { params: { id: project }, body: { forge: 'gitea' } });
});
afterEach(() => api.close());

const setToken = async (): Promise<void> => {
  expect(
    (await api.call('putGitToken', { params: { id: project }, body: { token: 'TOKEN' } })).status,
  ).toBe(200);
};
const TOKEN = { username: null, token: 'TOKEN', apiUrl: null };
function settings(): StatusSettings {
  return {
    send: async (request: ForgeRequest) => {
      const { url, headers, body } = request;
      received.push({
        ...(JSON.parse(body) as { state: string }),
        url: url.href,
        authorization: headers['authorization'],
      } as never);
      return answer(request);
    },
    tokenOf: async () => ((await api.stores.gitTokens.get(project)) === null ? null : TOKEN),
    publicUrl: 'https://berth.example.com/',
  };
}
function loop(over: Partial<Deps> = {}): Promise<void> {
  const statuses = settings();
  const { stores, uptime, changes } = api;
  const now = (): number => Date.now();
  return commitStatuses({
    ...stores,
    uptime,
    changes,
    statuses,
    now,
    log: silentLogger(),
    ...over,
  })(new AbortController().signal);
}
const sent = (): [string, string][] =>
  received.map(({ state, description }) => [state, description]);
const shown = async (id: string) =>
  (await api.call('getDeployment', { params: { id } })).json['commit_status'];

describe('a deployment', () => {
  it('of the repository before git_url changed is not reported to the present forge', async () => {
    await setToken();
    await api.call('createDeployment', { params: { id: project }, body: { commit: COMMIT } });
    await api.call('patchProject', {
      params: { id: project },
      body: { git_url: 'https://git.example.com/other.git' },
    });
    await setToken();
    await loop();
    expect(received).toEqual([]);
    await api.call('createDeployment', { params: { id: project }, body: { commit: sha('d') } });
    await loop();
    expect(received.map(({ url }) => url)).toEqual([expect.stringContaining('other')]);
  });
  it('of a project with a token and a known forge is pending, then a success', async () => {
    await setToken();
    const id = (
      await api.call('createDeployment', { params: { id: project }, body: { commit: COMMIT } })
    ).json['id'] as string;
    await loop();
    expect(received).toEqual([
      {
        url: `https://git.example.com/api/v1/repos/shop/statuses/${COMMIT}`,
        authorization: 'token TOKEN',
        state: 'pending',
        context: 'berth/shop',
        description: 'deployment 1 is in progress',
        target_url: `https://berth.example.com/deployments/${id}`,
      },
    ]);
    await tick(api, id);
    await world.built({ commit: COMMIT });
    await world.started(id);
    await loop();
    expect(sent().at(-1)).toEqual(['success', 'deployment 1 is live']);
    expect(await shown(id)).toMatchObject({ state: 'success', error: null, given_up: false });
    await loop();
    expect(received).toHaveLength(2);
  });
  it('whose commit is known only after the build is pending then', async () => {
    await setToken();
    const id = await deploy(api, project);
    await tick(api, id);
    await loop();
    expect(sent()).toEqual([]);
    await world.built({ commit: COMMIT });
    await loop();
    expect(sent()).toEqual([['pending', 'deployment 1 is in progress']]);
  });
  it('of a branch whose build failed is a failure at the commit that was built', async () => {
    await setToken();
    const id = await deploy(api, project);
    await tick(api, id);
    await world.work(world.builder, {
      status: 'failed',
      result: { error: { code: 'build_step_failed', message: 'RUN exit 1' } },
      commit: COMMIT,
    });
    await loop();
    expect(sent()).toEqual([['failure', expect.stringContaining('deployment 1 failed')]]);
    expect(received[0]?.url).toContain(COMMIT);
  });
  it('that was superseded, cancelled or failed is a failure with its own text', async () => {
    await setToken();
    const create = async (text: string): Promise<string> =>
      (await api.call('createDeployment', { params: { id: project }, body: { commit: sha(text) } }))
        .json['id'] as string;
    await create('a');
    const second = await create('b');
    await loop();
    expect(sent()).toContainEqual([
      'failure',
      'deployment 1 was superseded: deployment 2 was requested',
    ]);
    await api.call('cancelDeployment', { params: { id: second } });
    await loop();
    expect(sent().at(-1)).toEqual(['failure', 'deployment 2 was cancelled: cancelled on request']);
    const third = await create('d');
    await tick(api, third);
    await world.work(world.builder, {
      status: 'failed',
      result: { error: { code: 'build_step_failed', message: 'password=hunter2' } },
    });
    await loop();
    expect(sent().at(-1)).toEqual([
      'failure',
      'deployment 3 failed: A step of the Dockerfile failed',
    ]);
  });
  it('of a project without a token has no status', async () => {
    const id = (
      await api.call('createDeployment', { params: { id: project }, body: { commit: COMMIT } })
    ).json['id'] as string;
    expect(await shown(id)).toBeNull();
    await loop();
    expect(received).toEqual([]);
  });
  it('of a project whose forge is not known has no status', async () => {
    await setToken();
    await api.call('putHook', { params: { id: project }, body: { forge: 'generic' } });
    const id = (
      await api.call('createDeployment', { params: { id: project }, body: { commit: COMMIT } })
    ).json['id'] as string;
    await loop();
    expect(received).toEqual([]);
    expect(await shown(id)).toBeNull();
  });
  it('sends only the newest status of a commit', async () => {
    await setToken();
    const first = (
      await api.call('createDeployment', { params: { id: project }, body: { commit: COMMIT } })
    ).json['id'] as string;
    await api.call('cancelDeployment', { params: { id: first } });
    await api.call('createDeployment', { params: { id: project }, body: { commit: COMMIT } });
    await loop();
    expect(sent()).toEqual([['pending', 'deployment 2 is in progress']]);
    expect(await api.stores.commitStatuses.countWaiting()).toMatchObject({ count: 0 });
  });
});

describe('a push that a newer one replaced', () => {
  /**
   * The forge reports pushes of these commits, and a builder finds the last one at the tip. Returns
   * the deployment.
   */
  async function pushed(commits: string[], tip = commits.at(-1)): Promise<Record<string, unknown>> {
    const looker = await register(api, { capabilities: ['git_access', 'look'] });
    let last = '';
    for (const commit of commits) {
      last = `delivery-${commit}-${received.length}`;
      const given = {
        id: last,
        forge_id: null,
        event: 'push',
        branch: 'main',
        commit,
        verdict: null,
        reason: null,
      };
      await api.stores.hooks.receive(project, given, Date.now());
    }
    await api.driver.checkPushes(project);
    await world.work(looker, { commit: tip, result: { skip_mark: null, changes: [] } });
    const { deployment_id } = await api.stores.hooks.delivery(project, last);
    return (await api.call('getDeployment', { params: { id: String(deployment_id) } })).json;
  }

  it('has a status of its own, which leads to the deployment of the newer one', async () => {
    await setToken();
    const [first, second, third] = [sha('1'), sha('2'), sha('3')];
    const deployment = await pushed([first, second, third]);
    await loop();
    const superseded = ['failure', 'superseded: a newer push is deployed as deployment 1'];
    expect(received.map((r) => [r.url.split('/').at(-1), r.state, r.description])).toEqual(
      expect.arrayContaining([
        [first, ...superseded],
        [second, ...superseded],
        [third, 'pending', 'deployment 1 is in progress'],
      ]),
    );
    expect(received).toHaveLength(3);
    expect(new Set(received.map((r) => r.target_url))).toEqual(
      new Set([`https://berth.example.com/deployments/${String(deployment['id'])}`]),
    );
    // The deployment shows its own status.
    expect(await shown(String(deployment['id']))).toMatchObject({ state: 'pending' });
    await api.call('cancelDeployment', { params: { id: String(deployment['id']) } });
    await loop();
    expect(received.at(-1)).toMatchObject({
      state: 'failure',
      description: expect.stringContaining('cancelled'),
    });
    expect(received.at(-1)?.url).toContain(third);
  });
  it('keeps the status of its own deployment', async () => {
    await setToken();
    const [first, second] = [sha('1'), sha('2')];
    await pushed([first]);
    await loop();
    // Somebody repeats the delivery of the first commit while the second one is pushed.
    await pushed([first, second]);
    await loop();
    const ofFirst = received.filter((r) => r.url.endsWith(first)).map((r) => r.description);
    expect(ofFirst).toEqual([
      'deployment 1 is in progress',
      'deployment 1 was superseded: deployment 2 was requested',
    ]);
  });
  it('that cannot be reported: the deployment says which commit', async () => {
    await setToken();
    const [first, second] = [sha('1'), sha('2')];
    const { id } = await pushed([first, second]);
    answer = ({ url }) => ({
      status: url.href.endsWith(first) ? 404 : 201,
      text: '',
      retryAfterMs: 0,
    });
    for (let minute = 0; minute < 10; minute++) {
      await loop();
      api.pass(MINUTE);
    }
    const story = (await api.stores.deployments.events([String(id)])).get(String(id)) ?? [];
    expect(story.at(-1)?.message).toBe(
      `commit status failure of ${first} not sent: git.example.com answered 404`,
    );
    expect(await api.stores.commitStatuses.ofDeployment(String(id))).toMatchObject({
      state: 'pending',
      error: null,
    });
  });
});

describe('a forge', () => {
  let id: string;
  beforeEach(async () => {
    await setToken();
    id = (await api.call('createDeployment', { params: { id: project }, body: { commit: COMMIT } }))
      .json['id'] as string;
  });
  it('that is down for less than an hour gets the status afterwards; the deployment does not wait', async () => {
    answer = () => ({ status: 0, text: 'connect ECONNREFUSED', retryAfterMs: 0 });
    for (let minute = 0; minute < 30; minute += 5) {
      await loop();
      api.pass(5 * MINUTE);
    }
    expect(received.length).toBeGreaterThan(3);
    expect(await shown(id)).toMatchObject({
      state: 'pending',
      sent_at: null,
      error: 'git.example.com: connect ECONNREFUSED',
      given_up: false,
    });
    answer = () => ({ status: 201, text: '', retryAfterMs: 0 });
    api.pass(10 * MINUTE);
    await loop();
    expect(await shown(id)).toMatchObject({ state: 'pending', error: null });
  });
  it('that is down for an hour is given up, and the deployment says so', async () => {
    answer = () => ({ status: 503, text: 'maintenance\u0007', retryAfterMs: 0 });
    for (let minute = 0; minute < 70; minute++) {
      await loop();
      api.pass(MINUTE);
    }
    const tries = received.length;
    expect(tries).toBeGreaterThan(5);
    // The token of the test has expired by now.
    expect(await api.stores.commitStatuses.ofDeployment(id)).toMatchObject({
      state: 'pending',
      error: 'git.example.com answered 503: maintenance',
      done_at: expect.any(Number),
    });
    await loop();
    expect(received).toHaveLength(tries);
    const story = (await api.stores.deployments.events([id])).get(id) ?? [];
    expect(story.at(-1)).toMatchObject({
      kind: 'status_not_sent',
      message: 'commit status pending not sent: git.example.com answered 503: maintenance',
    });
    expect((await api.stores.deployments.get(id)).status).toBe('pending');
  });
  onceOnly.test('that refuses the token is given up after three tries', async () => {
    answer = () => ({ status: 401, text: '', retryAfterMs: 0 });
    for (let minute = 0; minute < 10; minute++) {
      await loop();
      api.pass(MINUTE);
    }
    expect(received).toHaveLength(3);
    expect(await shown(id)).toMatchObject({
      given_up: true,
      error: 'git.example.com answered 401',
    });
  });
  it.each([
    ['gitea', null, 'token TOKEN'],
    ['bitbucket', 'bot', `Basic ${Buffer.from('bot:TOKEN').toString('base64')}`],
  ] as const)(
    'that repeats the token in its answer (%s): no answer, story, event or row has it',
    async (forge, username, header) => {
      await api.call('putHook', { params: { id: project }, body: { forge } });
      const lines: string[] = [];
      const log = createLogger({
        name: 'cp',
        level: 'trace',
        format: 'json',
        destination: { write: (line) => lines.push(line) },
      });
      answer = ({ headers }) => ({
        status: 401,
        text: `not allowed:\n${headers['authorization']}`,
        retryAfterMs: 0,
      });
      const token = { username, token: 'TOKEN', apiUrl: null };
      for (let n = 0; n < 3; n++, api.pass(MINUTE))
        await loop({ log, statuses: { ...settings(), tokenOf: async () => token } });
      expect(received.at(-1)?.authorization).toBe(header);
      expect(await shown(id)).toMatchObject({
        given_up: true,
        error: expect.stringContaining('answered 401: not allowed: '),
      });
      const texts = [
        (await api.call('getDeployment', { params: { id } })).text,
        (await api.call('events', { query: { limit: 1000 } })).text,
        JSON.stringify(await api.stores.commitStatuses.ofDeployment(id)),
        lines.join(''),
      ].join('');
      expect(texts).toContain('answered 401');
      for (const secret of ['TOKEN', Buffer.from('bot:TOKEN').toString('base64')])
        expect(texts).not.toContain(secret);
    },
  );
  it('of a private network that no operator named: its text reaches nobody', async () => {
    answer = () => ({
      status: 404,
      text: 'page of an internal service',
      retryAfterMs: 0,
      isInternal: true,
    });
    for (let n = 0; n < 3; n++, api.pass(MINUTE)) await loop();
    expect(await shown(id)).toMatchObject({ error: 'git.example.com answered 404' });
    expect((await api.call('getDeployment', { params: { id } })).text).not.toContain(
      'internal service',
    );
  });
  onceOnly.test('that asks for patience gets it', async () => {
    answer = () => ({ status: 429, text: '', retryAfterMs: 5 * MINUTE });
    await loop();
    api.pass(2 * MINUTE);
    await loop();
    expect(received).toHaveLength(1);
    api.pass(4 * MINUTE);
    await loop();
    expect(received).toHaveLength(2);
  });
  it('gets each status once from two control planes, and again if one dies while it sends', async () => {
    await Promise.all([loop(), loop()]);
    expect(received).toHaveLength(1);
    await api.call('cancelDeployment', { params: { id } });
    const at = (await api.uptime.now()).at;
    // A control plane claims the status and dies.
    expect(
      await api.stores.commitStatuses.claim({ uptime: at, until: at + 30_000 }, 10),
    ).toHaveLength(1);
    await loop();
    expect(received).toHaveLength(1);
    api.pass(31_000);
    await loop();
    expect(sent().at(-1)?.[0]).toBe('failure');
  });
  it.each(['accepts', 'refuses'])(
    'that %s the status of a control plane that was stalled gets the newest one again',
    async (how) => {
      let thaw = (): void => undefined;
      const stall = new Promise<void>((resolve) => (thaw = resolve));
      const isSent = new Promise<void>((claimed) => {
        answer = () => (
          claimed(), { status: how === 'accepts' ? 201 : 503, text: '', retryAfterMs: 0 }
        );
      });
      // It freezes after its claim. Its request arrives when it continues.
      const stalled = loop({
        statuses: { ...settings(), tokenOf: async () => (await stall, TOKEN) },
      });
      await expect
        .poll(async () => (await api.stores.commitStatuses.ofDeployment(id))?.claimed_until)
        .not.toBeNull();
      await api.call('cancelDeployment', { params: { id } });
      api.pass(31_000);
      await loop();
      thaw();
      await stalled;
      await isSent;
      answer = () => ({ status: 201, text: '', retryAfterMs: 0 });
      await loop();
      await loop();
      const states = sent().map(([state]) => state);
      expect([states.includes('pending'), states.at(-1)]).toEqual([true, 'failure']);
      expect(await shown(id)).toMatchObject({ state: 'failure', sent_at: expect.any(String) });
      const before = received.length;
      api.pass(2 * 60 * MINUTE);
      await loop();
      expect(received).toHaveLength(before);
    },
  );
  it('gets a newer status of a commit only after the one that is being sent', async () => {
    const at = (await api.uptime.now()).at;
    const [pending] = await api.stores.commitStatuses.claim({ uptime: at, until: at + 30_000 }, 10);
    await api.call('cancelDeployment', { params: { id } });
    await loop();
    expect(received).toEqual([]);
    expect(
      await api.stores.commitStatuses.sent(
        pending ?? { seq: 0, claimed_until: null, tries: 0 },
        Date.now(),
      ),
    ).toBe(true);
    await loop();
    expect(sent().map(([state]) => state)).toEqual(['failure']);
  });
});

it('old statuses are removed, and at most 500 of a project wait', async () => {
  await setToken();
  const asked = onceOnly.times(505, 20);
  for (let n = 0; n < asked; n++) {
    const body = { commit: n.toString(16).padStart(40, '0') };
    expect((await api.call('createDeployment', { params: { id: project }, body })).status).toBe(
      201,
    );
  }
  // Each deployment but the last one was superseded, which is a status too.
  expect((await api.stores.commitStatuses.countWaiting()).count).toBe(Math.min(2 * asked - 1, 500));
  for (let n = 0; n < 30; n++) await loop();
  expect((await api.stores.commitStatuses.countWaiting()).count).toBe(0);
  expect(await api.stores.commitStatuses.sweep(Date.now() + 29 * 86_400_000)).toBe(0);
  expect(
    await api.stores.commitStatuses.sweep(Date.now() + 31 * 86_400_000),
  ).toBeGreaterThanOrEqual(Math.min(asked, 201));
  expect(await api.stores.commitStatuses.sweep(Date.now() + 31 * 86_400_000)).toBe(0);
}, 120_000);
