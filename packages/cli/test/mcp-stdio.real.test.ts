/**
 * `berth mcp` on standard input and output, as an assistant starts it, with the client of the
 * official SDK.
 */
import { join } from 'node:path';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import type { CallToolResult } from '@modelcontextprotocol/sdk/types.js';
import { repositoryRoot } from '@berth/testbed/config';
import { beforeAll, expect, onTestFinished, test } from 'vitest';
import { createWorld, type World } from '../../control-plane/test/api/deployed.ts';
import { createProject } from '../../control-plane/test/api/harness.ts';
import { programs, useBundle } from './programs.ts';
import { ADMIN, PASSWORD, serveOnce } from './support.ts';

const served = serveOnce();
useBundle();
const user = programs();
let world: World;
let shop: string;
const tokens: Record<string, string> = {};

beforeAll(async () => {
  world = await createWorld(served.api);
  shop = await createProject(served.api);
  await world.live(shop);
  await world.live(shop);
  expect((await user.run(['login', served.url, '--email', ADMIN], { stdin: PASSWORD })).code).toBe(
    0,
  );
  for (const role of ['viewer', 'developer'])
    tokens[role] = (await user.run(['token', 'create', role, '--role', role])).out.trim();
}, 60_000);

/** Starts the program. `broken`: what arrived on its standard output that is not the protocol. */
async function started(
  argv: string[],
  env: Record<string, string>,
): Promise<{ client: Client; broken: Error[] }> {
  const client = new Client({ name: 'test', version: '1' });
  const broken: Error[] = [];
  Object.assign(client, { onerror: (error: Error) => void broken.push(error) });
  const args = [join(repositoryRoot, 'bin', 'berth'), 'mcp', ...argv];
  await client.connect(
    new StdioClientTransport({
      command: process.execPath,
      args,
      cwd: user.home,
      env: { ...user.env, ...env },
      stderr: 'pipe',
    }),
  );
  onTestFinished(() => client.close());
  return { client, broken };
}

async function ask(
  client: Client,
  name: string,
  args: Record<string, unknown> = {},
): Promise<{ error: boolean; text: string }> {
  const result = (await client.callTool({ name, arguments: args })) as CallToolResult;
  const [content] = result.content;
  return { error: result.isError === true, text: content?.type === 'text' ? content.text : '' };
}

test('answers every question with the rights of the person who is signed in, and writes nothing else on standard output', async () => {
  const { client, broken } = await started([], {});
  const { tools } = await client.listTools();
  const given: Record<string, Record<string, string>> = {
    project_status: { project: 'shop' },
    explain_deployment: { project: 'shop' },
    why_this_node: { project: 'shop' },
    deployment_log: { deployment: (await newest()).id },
    what_changed_in_dataset: { dataset: 'nothing' },
    list_jobs: { project: 'shop' },
    list_runs: { project: 'shop' },
    show_run: { run: 'nothing' },
  };
  const isUnknown = new Set(['what_changed_in_dataset', 'show_run']);
  for (const { name } of tools) {
    const { error, text } = await ask(client, name, given[name]);
    expect({ name, error }, text).toEqual({ name, error: isUnknown.has(name) });
    if (!error) expect(JSON.parse(text), name).toBeTypeOf('object');
  }
  expect(tools.length).toBeGreaterThanOrEqual(7);
  expect(await ask(client, 'deploy', { project: 'shop' })).toMatchObject({
    error: true,
    text: expect.stringContaining('--allow-changes'),
  });
  expect(broken).toEqual([]);
});

const newest = async (): Promise<{ id: string; rollback_of: string | null; created_by: unknown }> =>
  (
    (await served.api.call('projectDeployments', { params: { id: shop } })).json as {
      items: never[];
    }
  ).items[0] as never;

test('with --allow-changes, a token of a developer rolls back and deploys; a token of a viewer does neither', async () => {
  const env = (role: string) => ({ BERTH_URL: served.url, BERTH_TOKEN: tokens[role] ?? '' });
  const viewer = await started(['--allow-changes'], env('viewer'));
  const before = await newest();
  for (const tool of ['deploy', 'rollback'])
    expect((await ask(viewer.client, tool, { project: 'shop' })).error).toBe(true);
  expect((await newest()).id).toBe(before.id);

  const developer = await started(['--allow-changes'], env('developer'));
  expect((await ask(developer.client, 'rollback', { project: 'shop' })).error).toBe(false);
  expect(await newest()).toMatchObject({
    rollback_of: expect.any(String),
    created_by: { kind: 'token' },
  });
  const deployed = await ask(developer.client, 'deploy', {
    project: 'shop',
    note: 'asked for by an assistant',
  });
  expect(deployed.error, deployed.text).toBe(false);
  expect(await newest()).toMatchObject({ note: 'asked for by an assistant' });
  expect([...viewer.broken, ...developer.broken]).toEqual([]);
});

test('without a session, or with a token that is refused, the program ends with 4 before it speaks the protocol', async () => {
  const stranger = await user.run(['mcp'], {
    env: { XDG_STATE_HOME: join(user.home, 'empty'), XDG_CONFIG_HOME: join(user.home, 'empty') },
  });
  expect(stranger).toMatchObject({
    code: 4,
    out: '',
    err: expect.stringContaining('not signed in'),
  });
  const refused = await user.run(['mcp'], {
    env: { BERTH_URL: served.url, BERTH_TOKEN: 'berthpat_wrong' },
  });
  expect(refused).toMatchObject({ code: 4, out: '' });
});
