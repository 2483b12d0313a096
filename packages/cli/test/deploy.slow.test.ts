/**
 * deploy, rollback, cancel, status and logs against the real control plane, with a builder and a
 * node that act like agents.
 */
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { stripVTControlCharacters } from 'node:util';
import { beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import { deploy as request, tick } from '../../control-plane/test/api/harness.ts';
import { createWorld, type World } from '../../control-plane/test/api/deployed.ts';
import { type Person, serveOnce, signedIn } from './support.ts';

const served = serveOnce();
let world: World;
let who: Person;
let count = 0;

beforeAll(async () => {
  world = await createWorld(served.api);
  who = await signedIn(served.url);
}, 60_000);

type Named = { id: string; name: string };
async function project(): Promise<Named> {
  const name = `shop-${++count}`;
  const { code, out, err } = await who.berth([
    'project',
    'create',
    name,
    '--git-url',
    `https://git.example.com/${name}.git`,
    '--drain-seconds',
    '0',
    '--json',
  ]);
  expect({ code, err }).toEqual({ code: 0, err: '' });
  return JSON.parse(out) as Named;
}

/** The newest deployment of a project, once there is one that is newer than `than`. */
async function newest(id: string, than = 0): Promise<string> {
  for (;;) {
    const { items } = (await served.api.call('projectDeployments', { params: { id } })).json as {
      items: { id: string; generation: number }[];
    };
    const [first] = items;
    if (first !== undefined && first.generation > than) return first.id;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

async function goLive(id: string): Promise<void> {
  await tick(served.api, id);
  await world.built({ commit_message: 'Add the checkout page', commit_author: 'Ada' });
  await world.started(id);
}

/** A TCP proxy on another port, which a test can take away. */
async function proxyTo(url: string): Promise<{ url: string; close(): void; open(): void }> {
  const sockets = new Set<Socket>();
  const server = createServer((from) => {
    const to = connect(Number(new URL(url).port), '127.0.0.1');
    for (const socket of [from, to]) sockets.add(socket.on('error', () => undefined));
    from.pipe(to).pipe(from);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    open: () => void server.listen(port, '127.0.0.1'),
    close() {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}

describe('deploy', () => {
  test('prints each step once, the address alone on stdout, and exits with 0', async () => {
    const { id, name } = await project();
    let shown = '';
    const running = who.berth(['deploy', name], { onErr: (text) => (shown += text) });
    const deployment = await newest(id);
    await tick(served.api, deployment);
    await vi.waitFor(() => expect(shown).toContain('build  runs: build assigned to'), 10_000);
    await world.built({ commit_message: 'Add the checkout page', commit_author: 'Ada' });
    await world.started(deployment);
    const { code, out, err } = await running;
    expect({ code, out }).toEqual({ code: 0, out: `http://${name}.berth.localhost:8000\n` });
    expect(err).toMatch(/^build +done: [0-9a-f]{8} Add the checkout page \(/m);
    expect(err).toMatch(/^place +done: node-1: /m);
    expect(err).toMatch(/^start +done: the container answers at 10\.0\.0\.7:32001 \(/m);
    expect(err).toMatch(/^route +done: live: /m);
    expect(err).toContain('deployment 1 is live after');
    const steps = err.split('\n').filter((line) => /^(build|place|start|route) +done/.test(line));
    expect(steps.length, err).toBe(new Set(steps.map((line) => line.split(' ')[0])).size);
  });

  test('a second deployment waits until the old version is gone', async () => {
    const { id, name } = await project();
    await world.live(id);
    const running = who.berth(['deploy', name]);
    await goLive(await newest(id, 1));
    const { code, err } = await running;
    expect(code).toBe(0);
    expect(err).toMatch(/^drain +done: the old version is gone \(/m);
  });

  test('the control plane goes away while the old version drains: the command succeeds, because the new version is live', async () => {
    const { id, name } = await project();
    await world.live(id);
    const way = await proxyTo(served.url);
    const person = await signedIn(way.url);
    let away = false;
    const running = person.berth(['deploy', name], {
      onErr: (text) => {
        if (away || !text.startsWith('route  done')) return;
        away = true;
        way.close();
      },
    });
    await goLive(await newest(id, 1));
    const { code, out, err } = await running;
    expect({ away, code, out }).toEqual({
      away: true,
      code: 0,
      out: `http://${name}.berth.localhost:8000\n`,
    });
    expect(err).toContain('the control plane does not answer');
    expect(err).toContain('deployment 2 is live after');
  });

  test('a failure names step, code, sentence, last lines, what still serves and the next command; exits with 1', async () => {
    const { id, name } = await project();
    await world.live(id);
    const running = who.berth(['deploy', name]);
    const deployment = await newest(id, 1);
    await tick(served.api, deployment);
    const [task] = (await served.api.call('agentTasks', { query: { node_id: world.builder } }))
      .json as unknown as { id: string }[];
    const claim = await served.api.call('agentStart', { params: { id: task?.id ?? '' } });
    const headers = { 'x-lease-token': String(claim.json['lease_token']) };
    const lines = Array.from({ length: 30 }, (_, i) => ({
      stream: 'stderr',
      text: `line ${i + 1} \u001b[31mred\u001b[2J`,
    }));
    // An agent ends the log with the sentence of the failure.
    const told = [
      { stream: 'system', text: 'RUN npm ci exited with 1:' },
      { stream: 'system', text: 'no network' },
    ];
    await served.api.call('agentLogs', {
      params: { id: task?.id ?? '' },
      headers,
      body: { lines: [...lines, ...told] },
    });
    await served.api.call('agentComplete', {
      params: { id: task?.id ?? '' },
      headers,
      body: {
        status: 'failed',
        result: {
          error: { code: 'build_step_failed', message: 'RUN npm ci exited with 1:\nno network' },
        },
      },
    });
    const { code, out, err } = await running;
    expect({ code, out }).toEqual({ code: 1, out: '' });
    expect(err).toContain('deployment 2 failed at build: build_step_failed');
    expect(
      err.match(/RUN npm ci exited with 1/g),
      'the sentence stands above the lines, and not in them again',
    ).toHaveLength(1);
    expect(err).toContain('line 30 red');
    expect(err).not.toContain('line 10 ');
    expect(err).toContain('deployment 1 (');
    expect(err).toContain('still serves at http://');
    expect(err).toContain('next:   correct it in the repository, push, then berth deploy');
    expect(err, 'control characters of a log never reach the terminal').not.toContain('\u001b');
  });

  test('--json: one JSON object for each change and a result at the end', async () => {
    const { id, name } = await project();
    const running = who.berth(['deploy', name, '--json']);
    await goLive(await newest(id));
    const { code, out, err } = await running;
    expect({ code, err }).toEqual({ code: 0, err: '' });
    const lines = out
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, unknown>);
    expect(lines.at(-1)).toMatchObject({
      type: 'result',
      status: 'running',
      url: `http://${name}.berth.localhost:8000`,
    });
    expect(
      lines
        .filter((line) => line['type'] === 'step' && line['state'] === 'done')
        .map((line) => line['step']),
    ).toEqual(['build', 'place', 'start', 'route']);
  });

  test('--detach prints the id alone and returns at once', async () => {
    const { id, name } = await project();
    const { code, out } = await who.berth(['deploy', name, '--detach']);
    expect({ code, out }).toEqual({ code: 0, out: `${await newest(id)}\n` });
  });

  test('Ctrl-C leaves the deployment running, says how to cancel it and exits with 130; cancel then works', async () => {
    const { id, name } = await project();
    const interrupted = new AbortController();
    const running = who.berth(['deploy', name], { interrupted: interrupted.signal });
    const deployment = await newest(id);
    interrupted.abort(new Error('interrupted'));
    const { code, out, err } = await running;
    expect({ code, out }).toEqual({ code: 130, out: '' });
    expect(err).toContain(`berth cancel ${deployment}`);
    expect(
      (await served.api.call('getDeployment', { params: { id: deployment } })).json,
    ).toMatchObject({ status: 'pending' });
    expect((await who.berth(['cancel', deployment])).code).toBe(0);
    const again = await who.berth(['cancel', deployment]);
    expect(again).toMatchObject({
      code: 1,
      err: expect.stringContaining('it has ended (cancelled)'),
    });
  });

  test('an unknown project exits with 1, an unknown commit with the words of the API', async () => {
    expect(await who.berth(['deploy', 'nowhere'])).toMatchObject({
      code: 1,
      out: '',
      err: expect.stringContaining('there is no project “nowhere”'),
    });
    const { name } = await project();
    expect(await who.berth(['deploy', name, '--commit', 'abc'])).toMatchObject({
      code: 1,
      err: expect.stringContaining('commit'),
    });
  });
});

describe('in a terminal', () => {
  test('the steps are drawn in place, no line is wider than the terminal, and the cursor is shown again', async () => {
    const { id, name } = await project();
    const running = who.berth(['deploy', name], {
      terminal: { err: true },
      columns: 60,
      env: { TERM: 'xterm' },
    });
    await goLive(await newest(id));
    const { code, err } = await running;
    expect(code).toBe(0);
    expect(err).toContain('\u001b[?25l');
    expect(err.lastIndexOf('\u001b[?25h')).toBeGreaterThan(err.lastIndexOf('\u001b[?25l'));
    const visible = stripVTControlCharacters(err)
      .split(/[\r\n]/)
      .filter((line) => /^ {2}\S /.test(line));
    expect(visible.length).toBeGreaterThan(3);
    expect(Math.max(...visible.map((line) => line.length))).toBeLessThanOrEqual(60);
  });

  test('the text below the steps of a failure is the end: the steps are not drawn again', async () => {
    const { id, name } = await project();
    const running = who.berth(['deploy', name], {
      terminal: { err: true },
      env: { TERM: 'xterm' },
    });
    await served.api.call('cancelDeployment', { params: { id: await newest(id) } });
    const { code, err } = await running;
    expect(code).toBe(1);
    expect(stripVTControlCharacters(err).trimEnd().split('\n').at(-1)).toBe(
      'next:   berth status, to see what serves',
    );
  });

  test.each([{ NO_COLOR: '1' }, { TERM: 'dumb' }])(
    '%j: plain lines without any escape code',
    async (env) => {
      const { id, name } = await project();
      const running = who.berth(['deploy', name], {
        terminal: { in: true, out: true, err: true },
        env,
      });
      await goLive(await newest(id));
      const { code, err, out } = await running;
      expect(code).toBe(0);
      expect(err + out).not.toContain('\u001b');
    },
  );
});

describe('rollback', () => {
  test('goes one release back each time and never returns', async () => {
    const { id, name } = await project();
    const first = await world.live(id);
    const second = await world.live(id);
    await world.live(id);
    const roll = async (): Promise<string> => {
      const { code, out, err } = await who.berth(['rollback', name, '--detach']);
      expect({ code, err: code === 0 ? '' : err }).toEqual({ code: 0, err: '' });
      const deployment = out.trim();
      await world.deployedAgain(deployment);
      return String(
        (await served.api.call('getDeployment', { params: { id: deployment } })).json[
          'rollback_of'
        ],
      );
    };
    expect(await roll()).toBe(second);
    expect(await roll()).toBe(first);
    expect(await who.berth(['rollback', name])).toMatchObject({
      code: 1,
      err: expect.stringContaining('no release older'),
    });
    const { code, out } = await who.berth(['rollback', name, '--to', '3', '--detach']);
    expect(code).toBe(0);
    await world.deployedAgain(out.trim());
  });

  test('a deployment that never ran is refused with the reason', async () => {
    const { id, name } = await project();
    await world.live(id);
    const pending = await request(served.api, id);
    expect(await who.berth(['rollback', name, '--to', pending])).toMatchObject({
      code: 1,
      err: expect.stringContaining('it is not live yet (pending)'),
    });
    expect((await who.berth(['cancel', name])).code).toBe(0);
  });
});

describe('which project', () => {
  const git = (cwd: string, ...args: string[]): void =>
    void execFileSync('git', ['-c', 'user.name=a', '-c', 'user.email=a@b', ...args], {
      cwd,
      stdio: 'ignore',
    });
  function folder(name: string, remote: string | null): string {
    const at = join(who.home, name);
    mkdirSync(at, { recursive: true });
    git(at, 'init', '-q', '-b', 'main');
    if (remote !== null) git(at, 'remote', 'add', 'origin', remote);
    writeFileSync(join(at, 'Dockerfile'), 'FROM scratch\n');
    git(at, 'add', '.');
    git(at, 'commit', '-q', '-m', 'first');
    return at;
  }

  test('the git remote of the folder, however it is written', async () => {
    const { name } = await project();
    for (const [index, remote] of [
      `git@git.example.com:${name}.git`,
      `ssh://git@git.example.com:2222/${name}`,
      `https://user:secret@git.example.com/${name}.git/`,
    ].entries()) {
      const shown = await who.berth(['project', 'show', '--json'], {
        cwd: folder(`remote-${count}-${index}`, remote),
      });
      expect(JSON.parse(shown.out)).toMatchObject({ name });
    }
  });

  test('.berth.json of a parent folder wins over the remote; --project and the argument win over both', async () => {
    const one = await project();
    const two = await project();
    const at = folder(`linked-${count}`, `https://git.example.com/${two.name}.git`);
    expect((await who.berth(['link', one.name], { cwd: at })).code).toBe(0);
    const own = await who.berth(['deploy', '--detach'], { cwd: at });
    expect(own.err, 'the file of the link is not a change').not.toContain('not committed');
    expect((await who.berth(['cancel'], { cwd: at })).code).toBe(0);
    const nested = join(at, 'src');
    mkdirSync(nested);
    const shown = async (...argv: string[]): Promise<unknown> =>
      JSON.parse((await who.berth(['project', 'show', ...argv, '--json'], { cwd: nested })).out);
    expect(await shown()).toMatchObject({ name: one.name });
    expect(await shown('--project', two.name)).toMatchObject({ name: two.name });
    expect(await shown(two.name)).toMatchObject({ name: two.name });
  });

  test('several projects of one repository: names them and exits with 2', async () => {
    const { name } = await project();
    const other = `${name}-staging`;
    expect(
      (
        await who.berth([
          'project',
          'create',
          other,
          '--git-url',
          `https://git.example.com/${name}.git`,
        ])
      ).code,
    ).toBe(0);
    const result = await who.berth(['status'], {
      cwd: folder(`several-${count}`, `https://git.example.com/${name}.git`),
    });
    expect(result).toMatchObject({
      code: 2,
      out: '',
      err: expect.stringContaining(`${name}, ${other}`),
    });
  });
});

describe('logs --previous', () => {
  /** The agent reports that the container of the deployment ended with this line. */
  async function ended(deployment_id: string, text: string): Promise<void> {
    const at = '2026-11-23T12:00:00.000Z';
    const exit = {
      ...{ deployment_id, container_id: deployment_id, container: 'svc', exit_code: 0 },
      ...{ out_of_memory: false, error: null, started_at: at, finished_at: at, truncated: false },
      lines: [{ at, stream: 'stdout', text }],
    };
    const body = { node_id: world.home, exits: [exit] };
    expect((await served.api.call('agentExits', { body })).json).toEqual({ stored: 1 });
  }
  async function failedBuild(id: string): Promise<string> {
    const deployment = await request(served.api, id);
    await tick(served.api, deployment);
    const error = { code: 'build_step_failed', message: 'RUN npm ci exited with 1' };
    await world.work(world.builder, { status: 'failed', result: { error } });
    return deployment;
  }

  test('prints the version that ran before the running one, past deployments that never ran', async () => {
    const { id, name } = await project();
    const first = await world.live(id);
    await failedBuild(id);
    const third = await world.live(id);
    await ended(first, 'line of the first version');
    // The newest deployment failed: the third one still runs.
    await failedBuild(id);
    for (const argv of [
      [name, '--previous'],
      [third, '--previous'],
    ]) {
      const { code, out, err } = await who.berth(['logs', ...argv]);
      expect({ code, out }, err).toEqual({ code: 0, out: 'line of the first version\n' });
    }
    const none = await who.berth(['logs', first, '--previous']);
    expect(none).toMatchObject({ code: 1, err: expect.stringContaining('no version') });
  });

  test('a container that ended before its version went live ran too', async () => {
    const { id, name } = await project();
    const first = await request(served.api, id);
    await tick(served.api, first);
    await world.built();
    await tick(served.api, first);
    const error = { code: 'container_exited', message: 'exit code 1' };
    await world.work(world.home, { status: 'failed', result: { error } });
    await ended(first, 'no database');
    await failedBuild(id);
    const { code, out, err } = await who.berth(['logs', name, '--previous']);
    expect({ code, out }, err).toEqual({ code: 0, out: 'no database\n' });
  });
});

describe('a control plane that goes away during a deployment', () => {
  test('says so, reads on when it answers again, and reports the end', async () => {
    const { id, name } = await project();
    const way = await proxyTo(served.url);
    onTestFinished(() => way.close());
    const person = await signedIn(way.url);
    let shown = '';
    const running = person.berth(['deploy', name], { onErr: (text) => (shown += text) });
    const deployment = await newest(id);
    await tick(served.api, deployment);
    await vi.waitFor(() => expect(shown).toContain('build  runs: build assigned to'), 10_000);
    way.close();
    await vi.waitFor(() => expect(shown).toContain('the control plane does not answer'), 10_000);
    await world.built({ commit_message: 'Add the checkout page', commit_author: 'Ada' });
    await world.started(deployment);
    way.open();
    const { code, out, err } = await running;
    expect({ code, out }, err).toEqual({ code: 0, out: `http://${name}.berth.localhost:8000\n` });
    expect(err).toContain('the control plane answers again after');
  });

  test('says so, and gives up with exit 3 after the deadline without touching the deployment', async () => {
    const { id, name } = await project();
    let passed = 0;
    const errors: string[] = [];
    const running = who.berth(['deploy', name], {
      // Time passes with the pauses between tries alone.
      monotonic: () => performance.now() + passed,
      sleep: async (ms) => void (passed += ms * 50),
      onErr: (text) => errors.push(text),
    });
    const deployment = await newest(id);
    await served.api.server.close();
    const { code, out, err } = await running;
    expect({ code, out }).toEqual({ code: 3, out: '' });
    expect(err).toContain('the control plane does not answer');
    expect(err).toContain(`berth deployment watch ${deployment}`);
    expect(errors.length).toBeGreaterThan(1);
  });
});
