/** The client of the engine against an engine that fails in all ways. */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { EngineError } from '../../src/engine/engine-client.ts';
import { createFrameReader } from '../../src/engine/log-frames.ts';
import { never } from '../data/share.ts';
import {
  frame,
  type HttpEngine,
  json,
  refuse,
  type Reply,
  startHttpEngine,
} from '../http-engine.ts';

let site: HttpEngine | null = null;
afterEach(async () => {
  await site?.stop();
  site = null;
});
const start = async (routes: Record<string, Reply>, version?: string): Promise<HttpEngine> =>
  (site = await startHttpEngine(routes, version === undefined ? {} : { version }));
const UNAVAILABLE = { name: 'TaskFailure', code: 'engine_unavailable' };
const hang: Reply = () => undefined;

describe('the version of the API', () => {
  it.each([
    ['1.41', '1.41'],
    ['1.44', '1.44'],
    ['1.51', '1.44'],
  ])('of an engine that speaks %s is %s', async (spoken, version) => {
    const { engine, requests } = await start({ 'GET /version': json({}) }, spoken);
    await engine.call('GET /version');
    await engine.call('GET /version');
    expect(requests.map((request) => request.version)).toEqual([version, version]);
  });
  it('is asked again when an older engine has taken the place', async () => {
    let refusals = 0;
    const { engine, requests } = await start({
      'GET /version': (response, request) =>
        (refusals++ === 0
          ? refuse(400, 'client version 1.44 is too new. Maximum supported API version is 1.41')
          : json({ Version: 'older' }))(response, request),
    });
    expect(await engine.call('GET /version')).toEqual({ Version: 'older' });
    expect(requests).toHaveLength(2);
  });
});

describe('an engine that', () => {
  it('hangs is unavailable after the deadline', async () => {
    const { engine } = await start({ 'GET /info': hang });
    const asking = engine.call('GET /info', { timeoutMs: 50 });
    await expect(asking).rejects.toMatchObject(UNAVAILABLE);
    await expect(asking).rejects.toThrow('did not answer GET /info within');
  });
  it('hangs from its first request on is unavailable after the deadline of the call', async () => {
    site = await startHttpEngine({}, { hangs: true });
    await expect(site.engine.call('GET /info', { timeoutMs: 50 })).rejects.toMatchObject(
      UNAVAILABLE,
    );
  });
  it('hangs in the middle of an answer is unavailable after the deadline', async () => {
    const { engine } = await start({ 'GET /info': (response) => void response.write('{') });
    await expect(engine.call('GET /info', { timeoutMs: 50 })).rejects.toMatchObject(UNAVAILABLE);
  });
  it('hangs is left at once when the task is taken away', async () => {
    const { engine } = await start({ 'GET /info': hang });
    const stop = new AbortController();
    const asking = engine.call('GET /info', { signal: stop.signal });
    setTimeout(() => stop.abort(new Error('taken away')), 20);
    await expect(asking).rejects.toThrow(/^taken away$/);
  });
  it('is not there is unavailable, and its address is named', async () => {
    const { engine, host, close } = await start({});
    await close();
    await expect(engine.call('GET /info')).rejects.toMatchObject(UNAVAILABLE);
    await expect(engine.call('GET /info')).rejects.toThrow(
      `cannot connect to the Docker daemon at ${host} (GET /_ping): connect ENOENT`,
    );
  });
  it('answers 500 with HTML refuses, and the text says so', async () => {
    const { engine } = await start({
      'GET /info': (response) => void response.writeHead(500).end('<html>Bad gateway</html>'),
    });
    const asking = engine.call('GET /info');
    await expect(asking).rejects.toBeInstanceOf(EngineError);
    await expect(asking).rejects.toThrow('GET /info: status 500 <html>Bad gateway</html>');
  });
  it.each<[string, Reply]>([
    ['answers with HTML', (response) => void response.end('<html></html>')],
    [
      'ends a chunked answer in the middle',
      (response) => {
        response.write('{"DockerRootDir":');
        setImmediate(() => response.destroy());
      },
    ],
    [
      'sends less than it announced',
      (response) => {
        response.writeHead(200, { 'content-length': '100' });
        response.write('{}');
        setImmediate(() => response.destroy());
      },
    ],
    ['ends without an answer', (response) => void response.destroy()],
  ])('%s is unavailable', async (_, reply) => {
    const { engine } = await start({ 'GET /info': reply, 'POST /containers/*/start': reply });
    await expect(engine.call('GET /info')).rejects.toMatchObject(UNAVAILABLE);
  });
  it('answers with too much is an error', async () => {
    const { engine } = await start({
      'GET /info': (response) => void response.end(Buffer.alloc(65 * 1024 * 1024, 32)),
    });
    await expect(engine.call('GET /info')).rejects.toMatchObject({ code: 'task_failed' });
  });
  it('was restarted since the last call answers the next one', async () => {
    const { engine, open, close } = await start({ 'GET /info': json({ DockerRootDir: '/a' }) });
    await engine.call('GET /info');
    await close();
    await open();
    expect(await engine.call('GET /info')).toEqual({ DockerRootDir: '/a' });
  });
  it('ends in the middle of a change is not asked to make it again', async () => {
    const { engine, requests } = await start({
      'GET /info': json({}),
      'POST /containers/create': (response) => void response.destroy(),
    });
    await engine.call('GET /info');
    const creating = engine.call('POST /containers/create', { body: { Image: 'a' } });
    await expect(creating).rejects.toMatchObject(UNAVAILABLE);
    expect(requests.map(({ call }) => call)).toEqual(['GET /info', 'POST /containers/create']);
  });
  it('has no space left fails with disk_full, and no secret is in the text', async () => {
    const { engine, credentials } = await start({
      'GET /info': refuse(500, 'open /secret-1: no space left on device'),
      'GET /version': refuse(500, 'a password secret-1'),
    });
    await credentials.use({ address: 'r:5000', user: 'berth', password: 'secret-1' });
    const asking = engine.call('GET /info');
    await expect(asking).rejects.toMatchObject({ code: 'disk_full' });
    await expect(asking).rejects.toThrow('/***: no space');
    await expect(engine.call('GET /version')).rejects.toThrow('GET /version: a password ***');
  });
});

describe('a list of containers', () => {
  const ids = (count: number) => Array.from({ length: count }, (_, i) => ({ Id: `c${i}` }));
  const describeIt: Reply = (response, { call }) => {
    const id = call.split('/')[2];
    return json({ Id: id, Name: `/${id}`, State: { Status: 'running' } })(response, {} as never);
  };
  it('leaves out a container that was removed since it was listed', async () => {
    const { docker } = await start({
      'GET /containers/json': json(ids(3)),
      'GET /containers/c1/json': refuse(404, 'No such container: c1'),
      'GET /containers/*/json': describeIt,
    });
    expect((await docker.list({ 'berth.node': null })).map(({ id }) => id)).toEqual(['c0', 'c2']);
  });
  it.each([
    ['a refusal', 500, 'layer does not exist'],
    ['a path that the engine does not know', 404, 'page not found'],
  ])('is an error after %s, and never shorter', async (_, status, message) => {
    const { docker } = await start({
      'GET /containers/json': json(ids(3)),
      'GET /containers/c1/json': refuse(status, message),
      'GET /containers/*/json': describeIt,
    });
    await expect(docker.list({})).rejects.toMatchObject({ name: 'TaskFailure' });
    await expect(docker.inspect('c1')).rejects.toMatchObject({ name: 'TaskFailure' });
  });
  it('of 10,000 containers uses few connections', async () => {
    const { docker, connections, requests } = await start({
      'GET /containers/json': json(ids(10_000)),
      'GET /containers/*/json': describeIt,
    });
    const containers = await docker.list({ 'berth.node': 'n', 'berth.project': null });
    expect(containers).toHaveLength(10_000);
    expect(containers.at(-1)).toMatchObject({ id: 'c9999', state: 'running' });
    expect(connections()).toBeLessThan(10);
    expect(JSON.parse(requests[0]?.query.get('filters') ?? '')).toEqual({
      label: ['berth.node=n', 'berth.project'],
    });
  });
});

describe('a name', () => {
  it('with odd characters is one part of the path', async () => {
    const { docker, requests } = await start({});
    await docker.inspect('a b?c#d&e').catch(() => undefined);
    expect(requests.map(({ call, query }) => [call, query.toString()])).toEqual([
      ['GET /containers/a%20b%3Fc%23d%26e/json', ''],
    ]);
  });
  it.each(['..', 'a/../../networks/x', './a', 'a//b', ''])(
    'that would be another call is refused: %j',
    async (ref) => {
      const { docker, requests } = await start({});
      await expect(docker.inspect(ref)).rejects.toThrow();
      await expect(docker.imageConfig(ref, never)).rejects.toThrow();
      await expect(docker.removeImageRef(ref)).rejects.toThrow();
      expect(requests).toEqual([]);
    },
  );
});

it('an image has the names that lie in the repository, whatever others it has', async () => {
  const { docker } = await start({
    'GET /images/json': json([
      {
        Id: 'sha256:i',
        Created: 7,
        RepoTags: ['r:5000/a:1', 'r:5000/a:2', 'r:5000/a/b:1', 'r:5000/ab:1', 'mine:1'],
        RepoDigests: ['r:5000/a@sha256:d', 'other/a@sha256:d'],
      },
      { Id: 'sha256:j', Created: 8, RepoTags: null, RepoDigests: ['r:5000/a@<none>'] },
    ]),
  });
  const refs = ['r:5000/a:1', 'r:5000/a:2', 'r:5000/a@sha256:d'];
  expect(await docker.images('r:5000/a')).toEqual([
    { id: 'sha256:i', created: 7, refs },
    { id: 'sha256:j', created: 8, refs: [] },
  ]);
  expect((await docker.images('r:5000/*'))[0]?.refs).toEqual([
    ...refs.slice(0, 2),
    'r:5000/ab:1',
    'r:5000/a@sha256:d',
  ]);
});

describe('events', () => {
  const event = (action: string) => JSON.stringify({ Action: action, Actor: { ID: 'c1' } });
  it('arrive one by one, in any parts, until the stream ends', async () => {
    const { docker } = await start({
      'GET /events': async (response) => {
        const text = `${event('start')}\n${event('health_status: healthy')}\n`;
        response.write(text.slice(0, 9));
        await sleep(10);
        response.end(text.slice(9));
      },
    });
    const actions: string[] = [];
    await docker.events({}, (action, id) => void actions.push(`${id} ${action}`), never);
    expect(actions).toEqual(['c1 start', 'c1 health_status: healthy']);
  });
  it('of an engine that dies are an error', async () => {
    const { docker } = await start({
      'GET /events': (response) => {
        response.write(`${event('start')}\n`);
        setTimeout(() => response.destroy(), 10);
      },
    });
    await expect(docker.events({}, () => undefined, never)).rejects.toMatchObject(UNAVAILABLE);
  });
  it('of the past tell how a container ended', async () => {
    const die = { Action: 'die', Actor: { ID: 'c1', Attributes: { exitCode: '137' } } };
    const { docker, requests } = await start({
      'GET /events': (response) =>
        void response.end(`${JSON.stringify({ Action: 'oom' })}\n${JSON.stringify(die)}\n`),
    });
    const end = await docker.lastEnd('c1', '2026-11-21T10:00:00.123456789Z');
    expect(end).toEqual({ exitCode: 137, outOfMemory: true });
    expect(requests[0]?.query.get('since')).toBe('1795255200.123456789');
  });
});

describe('the output of a container', () => {
  const read = (parts: readonly Buffer[]): [string, string, string | null] => {
    const output = { stdout: '', stderr: '' };
    const reader = createFrameReader((chunk, stream) => (output[stream] += chunk.toString()));
    for (const part of parts) reader.add(part);
    return [output.stdout, output.stderr, reader.error()];
  };
  const bytes = Buffer.concat([frame(1, 'out'), frame(2, 'err'), frame(1, ''), frame(3, 'broken')]);
  it('is the same wherever the engine cuts it', () => {
    const each = Array.from(bytes, (_, i) => bytes.subarray(i, i + 1));
    for (const parts of [[bytes], each, [bytes.subarray(0, 13), bytes.subarray(13)]])
      expect(read(parts)).toEqual(['out', 'err', 'broken']);
  });
  it('with a terminal has no frames', () => {
    expect(read([Buffer.from('2026-11-21T'), Buffer.from('\x01\x02')])).toEqual([
      '2026-11-21T\x01\x02',
      '',
      null,
    ]);
  });
  it('that is broken is an error', () => {
    expect(() => read([frame(1, 'out'), Buffer.from('no frame here')])).toThrow('without a frame');
  });
  it('is read with the engine’s times, and ends with its error', async () => {
    const { docker, requests } = await start({
      'GET /containers/*/logs': (response) => void response.end(bytes),
    });
    const chunks: string[] = [];
    const problem = await docker.logs('c1', {
      follow: false,
      tail: 5,
      since: '2026-11-21T10:00:00Z',
      until: null,
      onChunk: (chunk, stream) => void chunks.push(`${stream} ${chunk.toString()}`),
      signal: never,
    });
    expect(problem).toBe('broken');
    expect(chunks).toEqual(['stdout out', 'stderr err']);
    expect(Object.fromEntries(requests[0]?.query ?? [])).toEqual({
      stdout: 'true',
      stderr: 'true',
      timestamps: 'true',
      follow: 'false',
      tail: '5',
      since: '1795255200.000000000',
    });
  });
  it('of a container that is gone has the engine’s reason', async () => {
    const { docker } = await start({
      'GET /containers/*/logs': refuse(404, 'No such container: c1'),
    });
    const options = { follow: true, tail: null, since: null, until: null, signal: never };
    expect(await docker.logs('c1', { ...options, onChunk: () => undefined })).toBe(
      'No such container: c1',
    );
  });
});

describe('a command inside a container', () => {
  const routes = (code: number, run: Reply): Record<string, Reply> => ({
    'POST /containers/*/exec': json({ Id: 'e1' }, 201),
    'POST /exec/*/start': run,
    'GET /exec/*/json': json({ ExitCode: code, Running: false }),
  });
  const options = { timeoutMs: 5_000, signal: never };
  const print: Reply = (response) =>
    void response.end(Buffer.concat([frame(1, 'a\n'), frame(2, 'b\n')]));

  it('has its exit code and its output', async () => {
    const { docker, requests } = await start(routes(3, print));
    expect(await docker.runInside('c1', ['check', '--it'], options)).toEqual({
      ok: false,
      output: 'a\nb\n',
      isLate: false,
    });
    expect(requests[0]?.body).toMatchObject({ Cmd: ['check', '--it'] });
  });
  it('that has no result in time is late, with what it printed', async () => {
    const { docker } = await start(routes(0, (response) => void response.write(frame(1, 'a\n'))));
    expect(await docker.runInside('c1', ['check'], { ...options, timeoutMs: 200 })).toEqual({
      ok: false,
      output: 'a\n\nno result within 0 s',
      isLate: true,
    });
  });
  it('that the container lacks fails with the engine’s reason', async () => {
    const { docker } = await start(routes(0, refuse(400, 'exec: "check": not found in $PATH')));
    expect(await docker.runInside('c1', ['check'], options)).toMatchObject({
      ok: false,
      output: 'exec: "check": not found in $PATH',
    });
  });
  it('passes its lines on', async () => {
    const { docker } = await start(routes(0, print));
    const lines: string[] = [];
    const onLine = (line: string): void => void lines.push(line);
    expect(await docker.execute('c1', ['collect'], { ...options, onLine })).toEqual({
      code: 0,
      stdout: 'a\n',
      stderr: 'b\n',
    });
    expect(lines).toEqual(['a', 'b']);
  });
});
