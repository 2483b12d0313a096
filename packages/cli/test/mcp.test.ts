/** `berth mcp` with the client of the official SDK: questions, rights, bounds. */
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { CallToolResult } from '@modelcontextprotocol/sdk/types.js';
import { beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import { createProject, tick } from '../../control-plane/test/api/harness.ts';
import { createWorld, type World } from '../../control-plane/test/api/deployed.ts';
import { type Person, serveOnce, signedIn } from './support.ts';

const served = serveOnce();
let who: Person;
let world: World;
let shop: string;
const tokens: Record<string, string> = {};

beforeAll(async () => {
  who = await signedIn(served.url);
  world = await createWorld(served.api);
  shop = await createProject(served.api);
  await world.live(shop);
  for (const role of ['viewer', 'developer'])
    tokens[role] = (await who.berth(['token', 'create', role, '--role', role])).out.trim();
}, 60_000);

/** Starts `berth mcp --http` on a free port. Returns its address. */
async function start(...argv: string[]): Promise<string> {
  const interrupted = new AbortController();
  let shown = '';
  const running = who.berth(['mcp', '--http', '127.0.0.1:0', ...argv], {
    interrupted: interrupted.signal,
    onErr: (text) => (shown += text),
  });
  onTestFinished(async () => {
    interrupted.abort();
    await running;
  });
  return vi.waitFor(() => {
    const address = /listens at (\S+)/.exec(shown)?.[1];
    if (address === undefined) throw new Error(`not listening: ${shown}`);
    return address;
  }, 10_000);
}

async function connect(address: string, token: string): Promise<Client> {
  const client = new Client({ name: 'test', version: '1' });
  const transport = new StreamableHTTPClientTransport(new URL(address), {
    requestInit: { headers: { authorization: `Bearer ${token}` } },
  });
  await client.connect(transport);
  onTestFinished(() => client.close());
  return client;
}

const ask = async (
  client: Client,
  name: string,
  args: Record<string, unknown> = {},
): Promise<{ error: boolean; text: string }> => {
  const result = (await client.callTool({ name, arguments: args })) as CallToolResult;
  const [content] = result.content;
  return { error: result.isError === true, text: content?.type === 'text' ? content.text : '' };
};

describe('questions', () => {
  test('each question is answered with the facts of the platform', async () => {
    const client = await connect(await start(), tokens['viewer'] ?? '');
    expect(JSON.parse((await ask(client, 'what_needs_me')).text)).toMatchObject({
      projects: 1,
      live: 1,
      needs: [],
    });
    expect(
      JSON.parse((await ask(client, 'project_status', { project: 'shop' })).text),
    ).toMatchObject({
      name: 'shop',
      running: { status: 'running', instances: ['web 1 serves on node-1'] },
    });
    const explained = JSON.parse(
      (await ask(client, 'explain_deployment', { project: 'shop' })).text,
    ) as { steps: { step: string }[] };
    expect(explained.steps.map((s) => s.step)).toEqual(['build', 'place', 'start', 'route']);
    expect(
      JSON.parse((await ask(client, 'why_this_node', { project: 'shop' })).text),
    ).toMatchObject({ winner: 'node-1' });
    expect(
      JSON.parse((await ask(client, 'list_projects', { contains: 'sho' })).text),
    ).toMatchObject({
      total: 1,
      items: [{ name: 'shop' }],
    });
    expect((await ask(client, 'deployment_log', { deployment: 'nowhere' })).error).toBe(true);
    expect(await ask(client, 'what_changed_in_dataset', { dataset: 'nothing' })).toMatchObject({
      error: true,
      text: expect.stringContaining('does not exist'),
    });
  });

  test('jobs and runs have their times, states and output', async () => {
    const created = await served.api.call('createJob', {
      params: { id: shop },
      body: { name: 'report', schedule: '0 6 * * MON', command: ['node', 'report.js'] },
    });
    expect(created.status).toBe(201);
    const { json: run } = await served.api.call('createRun', {
      params: { id: shop },
      body: { command: ['node', 'migrate.js'] },
    });
    const client = await connect(await start(), tokens['viewer'] ?? '');
    const jobs = JSON.parse((await ask(client, 'list_jobs', { project: 'shop' })).text) as {
      items: { next_runs: string[] }[];
    };
    expect(jobs.items).toMatchObject([{ name: 'report', timezone: 'UTC', last_run: null }]);
    expect(jobs.items[0]?.next_runs).toHaveLength(3);
    expect(JSON.parse((await ask(client, 'list_runs', { project: 'shop' })).text)).toMatchObject({
      items: [{ run: run['id'], command: ['node', 'migrate.js'], job: null }],
      more: false,
    });
    expect(JSON.parse((await ask(client, 'show_run', { run: run['id'] })).text)).toMatchObject({
      run: run['id'],
      lines: [],
    });
    expect(await ask(client, 'list_runs', { project: 'shop', status: 'good' })).toMatchObject({
      error: true,
      text: expect.stringContaining('status must be one of pending'),
    });
  });

  test('wrong arguments are refused by name', async () => {
    const client = await connect(await start(), tokens['viewer'] ?? '');
    expect(await ask(client, 'explain_deployment', { nonsense: 'x' })).toMatchObject({
      error: true,
      text: expect.stringContaining('nonsense'),
    });
    expect((await ask(client, 'project_status', { project: { a: 1 } })).error).toBe(true);
    expect((await ask(client, 'nonsense')).error).toBe(true);
  });
});

describe('long answers', () => {
  test('the end of a long log survives, and no answer is longer than a client can read', async () => {
    const id = (await served.api.call('createDeployment', { params: { id: shop } })).json[
      'id'
    ] as string;
    await tick(served.api, id);
    const [task] = (await served.api.call('agentTasks', { query: { node_id: world.builder } }))
      .json as unknown as { id: string }[];
    const claim = await served.api.call('agentStart', { params: { id: task?.id ?? '' } });
    const headers = { 'x-lease-token': String(claim.json['lease_token']) };
    const lines = Array.from({ length: 200 }, (_, i) => ({
      stream: 'stderr',
      text: `line ${i} ${'x'.repeat(i % 20 === 19 ? 9_000 : 150)}`,
    }));
    await served.api.call('agentLogs', {
      params: { id: task?.id ?? '' },
      headers,
      body: { lines },
    });
    const result = { error: { code: 'build_step_failed', message: 'RUN npm ci exited with 1' } };
    await served.api.call('agentComplete', {
      params: { id: task?.id ?? '' },
      headers,
      body: { status: 'failed', result },
    });

    const client = await connect(await start(), tokens['viewer'] ?? '');
    const log = (await ask(client, 'deployment_log', { deployment: id, lines: '200' })).text;
    const shown = JSON.parse(log) as { lines: string[]; left_out: number };
    expect(shown.lines.at(-1)).toContain('line 199 ');
    expect(shown.left_out).toBe(200 - shown.lines.length);
    expect(shown.left_out).toBeGreaterThan(0);
    const explained = (await ask(client, 'explain_deployment', { deployment: id })).text;
    expect(JSON.parse(explained)).toMatchObject({
      failure: {
        code: 'build_step_failed',
        serves: expect.stringContaining('still serves'),
        next: expect.stringContaining('repository'),
      },
    });
    for (const text of [log, explained]) expect(text.length).toBeLessThan(40_000);
  });
});

describe('changes', () => {
  const namesOf = async (client: Client): Promise<string[]> =>
    (await client.listTools()).tools.map((tool) => tool.name);

  test('without --allow-changes, no tool changes anything, and a call says why', async () => {
    const client = await connect(await start(), tokens['developer'] ?? '');
    expect(await namesOf(client)).not.toContain('deploy');
    expect(
      (await client.listTools()).tools.every((tool) => tool.annotations?.readOnlyHint === true),
    ).toBe(true);
    expect(await ask(client, 'deploy', { project: 'shop' })).toMatchObject({
      error: true,
      text: expect.stringContaining('--allow-changes'),
    });
  });

  test('with --allow-changes, the role of the token decides', async () => {
    const address = await start('--allow-changes');
    const viewer = await connect(address, tokens['viewer'] ?? '');
    expect(await namesOf(viewer)).not.toContain('rollback');
    expect((await ask(viewer, 'deploy', { project: 'shop' })).error).toBe(true);
    const developer = await connect(address, tokens['developer'] ?? '');
    const asked = await ask(developer, 'deploy', { project: 'shop' });
    expect(asked.error, asked.text).toBe(false);
    const { deployment } = JSON.parse(asked.text) as { deployment: string };
    expect(
      (await served.api.call('getDeployment', { params: { id: deployment } })).json,
    ).toMatchObject({
      note: 'requested by an MCP client',
      created_by: { kind: 'token' },
    });
  });
});

describe('over HTTP', () => {
  const post = (address: string, headers: Record<string, string>, body = '{}'): Promise<Response> =>
    fetch(address, { method: 'POST', headers, body });

  test('a request without a token, or with a wrong one, gets 401', async () => {
    const address = await start();
    expect((await post(address, {})).status).toBe(401);
    expect((await post(address, { authorization: 'Bearer berthpat_wrong' })).status).toBe(401);
  });

  test('a page of another origin is refused, and so are large bodies and other methods', async () => {
    const address = await start();
    const authorization = `Bearer ${tokens['viewer']}`;
    expect(
      (await post(address, { authorization, origin: 'https://evil.example.com' })).status,
    ).toBe(403);
    expect((await post(address, { authorization }, 'x'.repeat(1_100_000))).status).toBe(413);
    expect((await fetch(address, { headers: { authorization } })).status).toBe(405);
  });
});
